/* Modules, libraries, functions and the linker: what can be known about code. */
#include "bench.h"

static const char ptx[] =
    "// A comment with an .entry fake() in it\n"
    ".version 8.3\n"
    ".target sm_80, texmode_independent\n"
    ".address_size 64\n"
    "/* .entry another() { } */\n"
    ".extern .global .u32 elsewhere;\n"
    ".visible .global .align 4 .u32 answer = 42;\n"
    ".visible .const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};\n"
    ".global .align 8 .b8 zeros[40];\n"
    ".visible .global .attribute(.managed) .align 4 .s32 shared_count = -7;\n"
    ".shared .align 4 .b8 scratch[1024];\n"
    ".visible .func (.param .b32 result) helper(.param .b32 x) { ret; }\n"
    ".visible .entry mixed(\n"
    "    .param .u64 .ptr .global .align 16 pointer,\n"
    "    .param .u8 small,\n"
    "    .param .f64 wide,\n"
    "    .param .align 4 .b8 record[12]\n"
    ")\n"
    ".maxntid 128, 2, 1\n"
    ".minnctapersm 2\n"
    "{\n"
    "    .shared .align 8 .b8 own[256];\n"
    "    .local .align 4 .b8 depot[64];\n"
    "    .reg .b32 %r<3>;\n"
    "    mov.u32 %r1, scratch;\n"
    "    { ld.shared.u32 %r2, [%r1]; }\n"
    "    ret;\n"
    "}\n"
    ".weak .entry bare\n"
    "{ ret; }\n";

static CUmodule load(void)
{
    CUmodule module = NULL;
    OK(cuModuleLoadData(&module, ptx));
    return module;
}

static int attribute(CUfunction function, CUfunction_attribute attribute)
{
    int value = -1;
    OK(cuFuncGetAttribute(&value, attribute, function));
    return value;
}

CASE(functions_have_the_parameters_of_their_code)
{
    static const size_t expected[][2] = {{0, 8}, {8, 1}, {16, 8}, {24, 12}};
    CUfunction function = NULL;
    size_t count = 0;
    size_t offset = 0;
    size_t bytes = 0;
    const char *name = NULL;
    new_context();
    OK(cuModuleGetFunction(&function, load(), "mixed"));
    OK(cuFuncGetName(&name, function));
    CHECK(strcmp(name, "mixed") == 0);
    OK(cuFuncGetParamCount(function, &count));
    CHECK_EQUAL(count, 4);
    for (size_t i = 0; i < 4; i++) {
        OK(cuFuncGetParamInfo(function, i, &offset, &bytes));
        CHECK_EQUAL(offset, expected[i][0]);
        CHECK_EQUAL(bytes, expected[i][1]);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 4, &offset, &bytes));
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024 + 256);
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 64);
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), 16);
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
    OK(cuModuleGetFunction(&function, load(), "bare"));
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 0);
}

CASE(names_are_found_or_not)
{
    CUfunction function = NULL;
    CUfunction again = NULL;
    CUfunction all[2];
    CUmodule owner = NULL;
    unsigned count = 0;
    new_context();
    const CUmodule module = load();
    OK(cuModuleGetFunction(&function, module, "mixed"));
    OK(cuModuleGetFunction(&again, module, "mixed"));
    CHECK(function == again);
    OK(cuFuncGetModule(&owner, function));
    CHECK(owner == module);
    OK(cuModuleGetFunctionCount(&count, module));
    CHECK_EQUAL(count, 2);
    OK(cuModuleEnumerateFunctions(all, 2, module));
    CHECK(all[0] == function);
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "fake"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "another"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "helper"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction(&function, module, NULL));
}

CASE(globals_have_memory_and_initial_values)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    float table[4];
    int value = 0;
    new_context();
    const CUmodule module = load();
    OK(cuModuleGetGlobal_v2(&address, &bytes, module, "answer"));
    CHECK_EQUAL(bytes, 4);
    FLOW(cuMemcpyDtoH_v2(&value, address, 4));
    CHECK_EQUAL(value, 42);
    OK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
    CHECK_EQUAL(bytes, 16);
    FLOW(cuMemcpyDtoH_v2(table, address, 16));
    CHECK(table[0] == 1 && table[3] == 4);
    OK(cuModuleGetGlobal_v2(&address, NULL, module, "shared_count"));
    FLOW(cuMemcpyDtoH_v2(&value, address, 4));
    CHECK(value == -7);
    OK(cuModuleGetGlobal_v2(NULL, &bytes, module, "zeros"));
    CHECK_EQUAL(bytes, 40);
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&address, &bytes, module, "elsewhere"));
    value = 43;
    OK(cuModuleGetGlobal_v2(&address, NULL, module, "answer"));
    FLOW(cuMemcpyHtoD_v2(address, &value, 4));
    OK(cuModuleGetGlobal_v2(&address, NULL, load(), "answer"));
    FLOW(cuMemcpyDtoH_v2(&value, address, 4));
    CHECK_EQUAL(value, 42); /* another module, another variable */
}

CASE(a_module_ends_with_its_functions_and_globals)
{
    CUfunction function = NULL;
    new_context();
    const size_t before = free_bytes();
    const CUmodule module = load();
    OK(cuModuleGetFunction(&function, module, "bare"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FLOW(cuModuleUnload(module));
    CHECK_EQUAL(free_bytes(), before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, module, "bare"));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

CASE(what_is_no_code_is_refused)
{
    static const struct {
        const char *image;
        CUresult error;
    } bad[] = {
        {"", CUDA_ERROR_INVALID_IMAGE},
        {"not code at all", CUDA_ERROR_INVALID_IMAGE},
        {".target sm_80\n.visible .entry f() { ret; }", CUDA_ERROR_INVALID_PTX},
        {".version 8.0\n.target sm_80\n.visible .entry f() { ret;", CUDA_ERROR_INVALID_PTX},
        {".version 8.0\n.target sm_80\n.visible .entry f(.param .u64", CUDA_ERROR_INVALID_PTX},
        {".version 8.0\n.target sm_999\n.visible .entry f() { ret; }", CUDA_ERROR_INVALID_PTX},
        {".version 99.0\n.target sm_80\n.entry f() { ret; }", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
        {"\x7f"
         "ELF and then nothing that is a cubin, for longer than the header of one would be",
         CUDA_ERROR_INVALID_IMAGE},
    };
    CUmodule module = NULL;
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    new_context();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(bad[i].error, cuModuleLoadData(&module, bad[i].image));
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, bad[2].image, 2, options, values));
    CHECK(strstr(log, "CUDA_ERROR_INVALID_PTX") != NULL);
    CHECK_EQUAL((uintptr_t)values[1], strlen(log) + 1);
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere/at/all"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&module, ptx, 1, NULL, NULL));
}

CASE(libraries_become_modules_where_they_are_used)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUkernel kernels[2];
    CUfunction function = NULL;
    CUfunction second_function = NULL;
    CUcontext second = NULL;
    CUdeviceptr address = 0;
    CUdeviceptr second_address = 0;
    unsigned count = 0;
    size_t parameters = 0;
    const char *name = NULL;
    OK(cuInit(0));
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0)); /* needs no context */
    OK(cuLibraryGetKernel(&kernel, library, "mixed"));
    OK(cuKernelGetName(&name, kernel));
    CHECK(strcmp(name, "mixed") == 0);
    OK(cuKernelGetParamCount(kernel, &parameters));
    CHECK_EQUAL(parameters, 4);
    OK(cuLibraryGetKernelCount(&count, library));
    CHECK_EQUAL(count, 2);
    OK(cuLibraryEnumerateKernels(kernels, 2, library));
    CHECK(kernels[0] == kernel);
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "nothing"));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&function, kernels[0]));
    new_context();
    OK(cuKernelGetFunction(&function, kernels[0]));
    OK(cuLibraryGetGlobal(&address, NULL, library, "answer"));
    OK(cuLibraryGetManaged(&address, NULL, library, "shared_count"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&address, NULL, library, "answer"));
    OK(cuCtxCreate_v2(&second, 0, 1));
    OK(cuKernelGetFunction(&second_function, kernels[0]));
    CHECK(function != second_function);
    OK(cuLibraryGetGlobal(&second_address, NULL, library, "shared_count"));
    CHECK(address != second_address);
    FLOW(cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernels[0]));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, function));
}

CASE(settings_of_kernels_hold_for_their_functions)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    int value = 0;
    new_context();
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "bare"));
    const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    OK(cuKernelGetAttribute(&value, most, kernel, 0));
    CHECK_EQUAL(value, 48 << 10);
    OK(cuKernelGetFunction(&function, kernel));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL));
    OK(cuKernelSetAttribute(most, 100000, kernel, 0));
    CHECK_EQUAL(attribute(function, most), 100000);
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL));
    OK(cuKernelGetAttribute(&value, most, kernel, 1));
    CHECK_EQUAL(value, 48 << 10); /* device by device */
    FAILS(CUDA_ERROR_INVALID_VALUE, cuKernelSetAttribute(most, 1 << 30, kernel, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuKernelSetAttribute(most, 1, kernel, 99));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
}

CASE(the_linker_joins_pieces)
{
    static char other[] = ".version 8.0\n.target sm_80\n"
                          ".visible .entry second(.param .u32 n, .param .u64 p) { ret; }\n";
    CUlinkState state = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    void *cubin = NULL;
    size_t bytes = 0;
    size_t offset = 0;
    int value = 0;
    new_context();
    OK(cuLinkCreate_v2(0, NULL, NULL, &state));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof ptx, "one", 0, NULL,
                        NULL));
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, other, strlen(other), "two", 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE,
          cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)"x", 1, "", 0, NULL, NULL));
    OK(cuLinkComplete(state, &cubin, &bytes));
    CHECK(bytes > 64 && memcmp(cubin,
                               "\x7f"
                               "ELF",
                               4) == 0);
    OK(cuModuleLoadData(&module, cubin));
    OK(cuLinkDestroy(state));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(state, &cubin, &bytes));
    OK(cuModuleGetFunction(&function, module, "second"));
    OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
    CHECK(offset == 8 && bytes == 8);
    OK(cuModuleGetFunction(&function, module, "mixed"));
    CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    OK(cuModuleGetGlobal_v2(&address, NULL, module, "shared_count"));
    FLOW(cuMemcpyDtoH_v2(&value, address, 4));
    CHECK(value == -7);
}

CASE(occupancy_follows_threads_registers_and_shared_memory)
{
    CUfunction function = NULL;
    int blocks = 0;
    int grid = 0;
    int block = 0;
    size_t dynamic = 0;
    new_context();
    OK(cuModuleGetFunction(&function, load(), "bare"));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
    CHECK_EQUAL(blocks, 2);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
    CHECK_EQUAL(blocks, 32);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 64, 40 << 10));
    CHECK_EQUAL(blocks, 5);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    CHECK(grid == 2 * 132 && block == 1024);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 200));
    CHECK(block <= 200 && block > 0);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, function, 1, 64));
    CHECK_EQUAL(dynamic, 48 << 10);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, function, 32, 64));
    CHECK(dynamic < 8 << 10);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
    OK(cuModuleGetFunction(&function, load(), "mixed"));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 512, 0));
    CHECK_EQUAL(blocks, 0); /* more threads than it was compiled for */
}
