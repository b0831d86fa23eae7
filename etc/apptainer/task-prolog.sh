#!/bin/sh
# For TaskProlog= in slurm.conf: the variables that Apptainer takes into a container whatever the image, --cleanenv or a
# setuid starter do with LD_PRELOAD. Slurm adds what is printed to the environment of the task.
[ -n "${VGPU_REGION:-}" ] || exit 0
for prefix in APPTAINERENV SINGULARITYENV; do
  echo "export ${prefix}_LD_PRELOAD=$LD_PRELOAD"
  echo "export ${prefix}_VGPU_REGION=$VGPU_REGION"
done
