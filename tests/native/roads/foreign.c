/* A library with a function that happens to be called like one of the driver's. */
int cuMemAlloc_v2(void);

int cuMemAlloc_v2(void)
{
    return 4711;
}
