#!/usr/bin/env bash
# Debian's packages that tests use where they are: a browser for pages, PoCL and Mesa's Vulkan on
# the processor as devices.
# What could not be installed is said at the end of the tests, which then skip what needs it.
set -uo pipefail

need=()
command -v chromium chromium-browser > /dev/null || need+=(chromium)
ls /etc/OpenCL/vendors/*.icd > /dev/null 2>&1 || need+=(pocl-opencl-icd)
ls /usr/share/vulkan/icd.d/lvp* > /dev/null 2>&1 || need+=(mesa-vulkan-drivers)
[ ${#need[@]} -eq 0 ] && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get update -q && apt-get install -y -q "${need[@]}"; } > "$log" 2>&1 ||
    echo "not installed: ${need[*]}; what needs them is skipped"
