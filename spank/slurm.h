// Slurm's own headers, made fit for C++: spank.h declares the callbacks outside extern "C".
#pragma once

extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>
}
