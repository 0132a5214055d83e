/*
 * A device's NVLinks, numbered from 0.
 *
 * A profile says how many links lead to each other device. When that adds up to more links than a
 * GPU of its generation has, all links lead into an NVSwitch; else each leads to one device, in
 * the order of the devices.
 */
#pragma once

#include "session.h"

unsigned link_count(const struct sim_profile *profile);
bool links_to_switch(const struct sim_profile *profile);

/* The device at the other end, or -1: a switch. */
int link_peer(const struct sim_profile *profile, unsigned link);

/* Megabytes a second, in one direction. */
unsigned link_megabytes_per_second(const struct sim_profile *profile);
