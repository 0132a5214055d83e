"""Kernels for tests, the demo and benchmarks: they take exactly as long as they are asked to."""

__all__ = ["TEST_PTX"]

TEST_PTX = """\
.version 8.0
.target sm_70
.address_size 64

// Busy for the nanoseconds of its parameter.
.visible .entry aliquot_spin(.param .u64 duration_ns)
{
    ret;
}

// Busy for the microseconds in its name; modules may declare others of this form.
.visible .entry aliquot_spin_us_100()
{
    ret;
}

// Timed by grid and block, as every other kernel.
.visible .entry aliquot_idle(.param .u64 .ptr .global .align 4 data, .param .u32 count)
{
    ret;
}
"""
"""PTX for cuModuleLoadData; `aliquot_spin` is the kernel whose duration the caller chooses."""
