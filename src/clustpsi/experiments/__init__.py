"""Many runs: grids, sweeps and studies."""
