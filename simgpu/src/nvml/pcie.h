/* A device's place on the PCI bus. */
#pragma once

#include "session.h"

void fill_pci_info(const struct sim_profile *profile, nvmlPciInfo_t *info);
