"""Measure one row in this process: `python -m benchmarks.alone NAME [--quick]`; prints JSON.

A process of its own gives each row its precision and cores, and makes its first call really cold.
"""

import dataclasses
import json
import sys


def main() -> None:
    from benchmarks.measuring import on_cores
    from benchmarks.rows import JOBS

    name, quick = sys.argv[1], "--quick" in sys.argv
    job = JOBS[name]
    on_cores(job.cores)
    import jax

    # Runs are shared out over devices.
    jax.config.update("jax_num_cpu_devices", min(job.devices, job.cores))
    jax.config.update("jax_enable_x64", job.x64)
    # A cache would make cold calls warm.
    jax.config.update("jax_enable_compilation_cache", False)
    json.dump([dataclasses.asdict(row) for row in job.measure(quick)], sys.stdout)


if __name__ == "__main__":
    main()
