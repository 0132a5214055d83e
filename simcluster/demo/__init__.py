"""`aliquot demo`: the whole system on simulated GPUs, with every promise checked."""
