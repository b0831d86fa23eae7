"""OpenMM on its CUDA platform: a gas that moves for a while. After its start it takes no memory."""
import openmm

import client

platform = openmm.Platform.getPlatformByName("CUDA")


def gas(particles):
    """A context of OpenMM's, on the primary context of the device or one of its own."""
    system = openmm.System()
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    side = round(particles ** (1 / 3)) + 1
    box = [[0.4 * side * (i == j) for i in range(3)] for j in range(3)]
    system.setDefaultPeriodicBoxVectors(*box)
    for _ in range(particles):
        system.addParticle(39.9)
        force.addParticle(0, 0.34, 1)
    system.addForce(force)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, {"DeviceIndex": "0"})
    context.setPositions([(0.4 * (i % side), 0.4 * (i // side % side), 0.4 * (i // side**2)) for i in range(particles)])
    return context


def work():
    global context
    context = gas(1000)
    context.getIntegrator().step(20)
    assert len(context.getState(getPositions=True).getPositions()) == 1000


def synchronise():
    context.getState(getPositions=True) if "context" in globals() else None


client.main(work, lambda i: gas(20000), 1, openmm.OpenMMException, synchronise)
