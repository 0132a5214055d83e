/*
 * Memory of graphs: charged for what the driver has reserved for their allocation nodes.
 */
#pragma once

/* Books what the devices' graph memory has grown or shrunk by since somebody last looked. */
void graph_memory_settle(void);

/* Lets the driver take back what no graph uses. */
void graph_memory_trim(int device);
