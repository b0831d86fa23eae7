section_nvml() {
  local status=0
  "$tables" nvml || status=1
  echo
  "$tables" moments || status=1
  return $status
}
