#!/usr/bin/env bash
# Install the Debian packages that tests can use: a browser for pages; PoCL and Mesa's Vulkan
# driver as devices that run on the processor. Tests that need a missing package are skipped.
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
