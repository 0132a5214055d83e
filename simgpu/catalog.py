"""The ready-made GPU models: what each kind of GPU is, wherever it is plugged in."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["MODELS", "Architecture", "Brand", "GpuModel"]


class Architecture(IntEnum):
    """NVML's numbers."""

    VOLTA = 5
    TURING = 6
    AMPERE = 7
    ADA = 8
    HOPPER = 9
    BLACKWELL = 10


class Brand(IntEnum):
    """NVML's numbers; they also tell boards with ECC memory from those without."""

    TESLA = 2
    GEFORCE = 5
    NVIDIA_RTX = 13
    NVIDIA = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """What all GPUs of one model have in common."""

    key: str
    """What a user writes."""
    name: str
    """What NVML and CUDA say."""
    memory_mib: int
    """NVML's total on the real board."""
    context_mib: int
    """What one CUDA context takes, roughly as on the real board."""
    sm_count: int
    compute: tuple[int, int]
    sm_clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    l2_mib: int
    power_limit_watts: int
    architecture: Architecture
    brand: Brand
    pci_device: int
    pcie_generation: int
    nvlink_count: int
    """Links of each GPU into the node's NVSwitch; 0: PCIe only."""
    nvlink_version: int


# Data sheets and what nvidia-smi prints on the boards; one row of values is one line of the sheet.
# fmt: off
_ALL = (
    GpuModel(
        key="V100-16G",
        name="Tesla V100-SXM2-16GB",
        memory_mib=16384, context_mib=308,
        sm_count=80, compute=(7, 0), sm_clock_mhz=1530,
        memory_clock_mhz=877, memory_bus_bits=4096, l2_mib=6,
        power_limit_watts=300, architecture=Architecture.VOLTA, brand=Brand.TESLA,
        pci_device=0x1DB1, pcie_generation=3, nvlink_count=6, nvlink_version=2,
    ),
    GpuModel(
        key="V100-32G",
        name="Tesla V100-SXM2-32GB",
        memory_mib=32768, context_mib=308,
        sm_count=80, compute=(7, 0), sm_clock_mhz=1530,
        memory_clock_mhz=877, memory_bus_bits=4096, l2_mib=6,
        power_limit_watts=300, architecture=Architecture.VOLTA, brand=Brand.TESLA,
        pci_device=0x1DB5, pcie_generation=3, nvlink_count=6, nvlink_version=2,
    ),
    GpuModel(
        key="V100-PCIE-16G",
        name="Tesla V100-PCIE-16GB",
        memory_mib=16384, context_mib=308,
        sm_count=80, compute=(7, 0), sm_clock_mhz=1380,
        memory_clock_mhz=877, memory_bus_bits=4096, l2_mib=6,
        power_limit_watts=250, architecture=Architecture.VOLTA, brand=Brand.TESLA,
        pci_device=0x1DB4, pcie_generation=3, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="T4",
        name="Tesla T4",
        memory_mib=15360, context_mib=104,
        sm_count=40, compute=(7, 5), sm_clock_mhz=1590,
        memory_clock_mhz=5001, memory_bus_bits=256, l2_mib=4,
        power_limit_watts=70, architecture=Architecture.TURING, brand=Brand.TESLA,
        pci_device=0x1EB8, pcie_generation=3, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="A100-40G",
        name="NVIDIA A100-SXM4-40GB",
        memory_mib=40960, context_mib=414,
        sm_count=108, compute=(8, 0), sm_clock_mhz=1410,
        memory_clock_mhz=1215, memory_bus_bits=5120, l2_mib=40,
        power_limit_watts=400, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x20B0, pcie_generation=4, nvlink_count=12, nvlink_version=3,
    ),
    GpuModel(
        key="A100-80G",
        name="NVIDIA A100-SXM4-80GB",
        memory_mib=81920, context_mib=414,
        sm_count=108, compute=(8, 0), sm_clock_mhz=1410,
        memory_clock_mhz=1593, memory_bus_bits=5120, l2_mib=40,
        power_limit_watts=400, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x20B2, pcie_generation=4, nvlink_count=12, nvlink_version=3,
    ),
    GpuModel(
        key="A100-PCIE-40G",
        name="NVIDIA A100-PCIE-40GB",
        memory_mib=40960, context_mib=414,
        sm_count=108, compute=(8, 0), sm_clock_mhz=1410,
        memory_clock_mhz=1215, memory_bus_bits=5120, l2_mib=40,
        power_limit_watts=250, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x20F1, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="A100-PCIE-80G",
        name="NVIDIA A100 80GB PCIe",
        memory_mib=81920, context_mib=414,
        sm_count=108, compute=(8, 0), sm_clock_mhz=1410,
        memory_clock_mhz=1512, memory_bus_bits=5120, l2_mib=40,
        power_limit_watts=300, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x20B5, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="A30",
        name="NVIDIA A30",
        memory_mib=24576, context_mib=298,
        sm_count=56, compute=(8, 0), sm_clock_mhz=1440,
        memory_clock_mhz=1215, memory_bus_bits=3072, l2_mib=24,
        power_limit_watts=165, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x20B7, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="A10",
        name="NVIDIA A10",
        memory_mib=23028, context_mib=256,
        sm_count=72, compute=(8, 6), sm_clock_mhz=1695,
        memory_clock_mhz=6251, memory_bus_bits=384, l2_mib=6,
        power_limit_watts=150, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x2236, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="A40",
        name="NVIDIA A40",
        memory_mib=46068, context_mib=278,
        sm_count=84, compute=(8, 6), sm_clock_mhz=1740,
        memory_clock_mhz=7251, memory_bus_bits=384, l2_mib=6,
        power_limit_watts=300, architecture=Architecture.AMPERE, brand=Brand.NVIDIA,
        pci_device=0x2235, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="RTX-3090",
        name="NVIDIA GeForce RTX 3090",
        memory_mib=24576, context_mib=272,
        sm_count=82, compute=(8, 6), sm_clock_mhz=1695,
        memory_clock_mhz=9751, memory_bus_bits=384, l2_mib=6,
        power_limit_watts=350, architecture=Architecture.AMPERE, brand=Brand.GEFORCE,
        pci_device=0x2204, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="RTX-A6000",
        name="NVIDIA RTX A6000",
        memory_mib=49140, context_mib=278,
        sm_count=84, compute=(8, 6), sm_clock_mhz=1800,
        memory_clock_mhz=8001, memory_bus_bits=384, l2_mib=6,
        power_limit_watts=300, architecture=Architecture.AMPERE, brand=Brand.NVIDIA_RTX,
        pci_device=0x2230, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="L4",
        name="NVIDIA L4",
        memory_mib=23034, context_mib=210,
        sm_count=58, compute=(8, 9), sm_clock_mhz=2040,
        memory_clock_mhz=6251, memory_bus_bits=192, l2_mib=48,
        power_limit_watts=72, architecture=Architecture.ADA, brand=Brand.NVIDIA,
        pci_device=0x27B8, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="L40",
        name="NVIDIA L40",
        memory_mib=46068, context_mib=424,
        sm_count=142, compute=(8, 9), sm_clock_mhz=2490,
        memory_clock_mhz=9001, memory_bus_bits=384, l2_mib=96,
        power_limit_watts=300, architecture=Architecture.ADA, brand=Brand.NVIDIA,
        pci_device=0x26B5, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="L40S",
        name="NVIDIA L40S",
        memory_mib=46068, context_mib=424,
        sm_count=142, compute=(8, 9), sm_clock_mhz=2520,
        memory_clock_mhz=9001, memory_bus_bits=384, l2_mib=96,
        power_limit_watts=350, architecture=Architecture.ADA, brand=Brand.NVIDIA,
        pci_device=0x26B9, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="RTX-4090",
        name="NVIDIA GeForce RTX 4090",
        memory_mib=24564, context_mib=388,
        sm_count=128, compute=(8, 9), sm_clock_mhz=2520,
        memory_clock_mhz=10501, memory_bus_bits=384, l2_mib=72,
        power_limit_watts=450, architecture=Architecture.ADA, brand=Brand.GEFORCE,
        pci_device=0x2684, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="RTX-6000-ADA",
        name="NVIDIA RTX 6000 Ada Generation",
        memory_mib=49140, context_mib=424,
        sm_count=142, compute=(8, 9), sm_clock_mhz=2505,
        memory_clock_mhz=10001, memory_bus_bits=384, l2_mib=96,
        power_limit_watts=300, architecture=Architecture.ADA, brand=Brand.NVIDIA_RTX,
        pci_device=0x26B1, pcie_generation=4, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="H100-80G",
        name="NVIDIA H100 80GB HBM3",
        memory_mib=81559, context_mib=522,
        sm_count=132, compute=(9, 0), sm_clock_mhz=1980,
        memory_clock_mhz=2619, memory_bus_bits=5120, l2_mib=50,
        power_limit_watts=700, architecture=Architecture.HOPPER, brand=Brand.NVIDIA,
        pci_device=0x2330, pcie_generation=5, nvlink_count=18, nvlink_version=4,
    ),
    GpuModel(
        key="H100-PCIE-80G",
        name="NVIDIA H100 PCIe",
        memory_mib=81559, context_mib=470,
        sm_count=114, compute=(9, 0), sm_clock_mhz=1755,
        memory_clock_mhz=1593, memory_bus_bits=5120, l2_mib=50,
        power_limit_watts=350, architecture=Architecture.HOPPER, brand=Brand.NVIDIA,
        pci_device=0x2331, pcie_generation=5, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="H100-NVL",
        name="NVIDIA H100 NVL",
        memory_mib=95830, context_mib=522,
        sm_count=132, compute=(9, 0), sm_clock_mhz=1785,
        memory_clock_mhz=2619, memory_bus_bits=6016, l2_mib=50,
        power_limit_watts=400, architecture=Architecture.HOPPER, brand=Brand.NVIDIA,
        pci_device=0x2321, pcie_generation=5, nvlink_count=0, nvlink_version=0,
    ),
    GpuModel(
        key="H200",
        name="NVIDIA H200",
        memory_mib=143771, context_mib=522,
        sm_count=132, compute=(9, 0), sm_clock_mhz=1980,
        memory_clock_mhz=3201, memory_bus_bits=6144, l2_mib=50,
        power_limit_watts=700, architecture=Architecture.HOPPER, brand=Brand.NVIDIA,
        pci_device=0x2335, pcie_generation=5, nvlink_count=18, nvlink_version=4,
    ),
    GpuModel(
        key="B200",
        name="NVIDIA B200",
        memory_mib=183359, context_mib=610,
        sm_count=148, compute=(10, 0), sm_clock_mhz=1965,
        memory_clock_mhz=3996, memory_bus_bits=8192, l2_mib=126,
        power_limit_watts=1000, architecture=Architecture.BLACKWELL, brand=Brand.NVIDIA,
        pci_device=0x2901, pcie_generation=5, nvlink_count=18, nvlink_version=5,
    ),
    GpuModel(
        key="RTX-5090",
        name="NVIDIA GeForce RTX 5090",
        memory_mib=32607, context_mib=512,
        sm_count=170, compute=(12, 0), sm_clock_mhz=2407,
        memory_clock_mhz=14001, memory_bus_bits=512, l2_mib=96,
        power_limit_watts=575, architecture=Architecture.BLACKWELL, brand=Brand.GEFORCE,
        pci_device=0x2B85, pcie_generation=5, nvlink_count=0, nvlink_version=0,
    ),
)
# fmt: on

MODELS = {model.key: model for model in _ALL}
