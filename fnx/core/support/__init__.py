"""What every package needs: errors, configuration, records, facts about targets, process state."""
