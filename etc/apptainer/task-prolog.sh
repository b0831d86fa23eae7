#!/bin/sh
# For TaskProlog= in slurm.conf. Apptainer passes these variables into a container even if the image, --cleanenv or a
# setuid starter removes LD_PRELOAD. Slurm adds what is printed here to the environment of the task.
[ -n "${VGPU_REGION:-}" ] || exit 0
for prefix in APPTAINERENV SINGULARITYENV; do
  echo "export ${prefix}_LD_PRELOAD=$LD_PRELOAD"
  echo "export ${prefix}_VGPU_REGION=$VGPU_REGION"
done
