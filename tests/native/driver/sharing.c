/* Memory and events between processes, by handles of 64 bytes. */
#define _GNU_SOURCE
#include "check.h"
#include "cuda_exec_abi.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files that stand beside the node's. */
static int files_beside_the_node(void)
{
    const char *state = getenv("ALIQUOT_SIM_STATE");
    CHECK(state != NULL);
    char *folder = strdup(state);
    *strrchr(folder, '/') = '\0';
    DIR *files = opendir(folder);
    CHECK(files != NULL);
    int count = 0;
    for (struct dirent *file = readdir(files); file != NULL; file = readdir(files))
        count += file->d_name[0] != '.';
    closedir(files);
    free(folder);
    return count - 1;
}

static void open_two(int socket)
{
    CUipcMemHandle handles[2];
    CUdeviceptr addresses[2];
    static char bytes[3 * MIB];
    fresh_context();
    receive_all(socket, handles, sizeof handles); /* from here on the other process waits */
    const size_t before = free_bytes();
    for (int i = 0; i < 2; i++) {
        CUdeviceptr again = 0;
        OK(cuIpcOpenMemHandle_v2(&addresses[i], handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        OK(cuIpcOpenMemHandle_v2(&again, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CHECK_EQUAL(again, addresses[i]);
        OK(cuIpcCloseMemHandle(again));
    }
    CHECK_EQUAL(free_bytes(), before); /* the exporter pays */
    OK(cuMemcpyDtoH_v2(bytes, addresses[0], 1000));
    CHECK(is_painted(bytes, 1000, 1));
    OK(cuMemcpyDtoH_v2(bytes, addresses[1], sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 2));
    OK(cuMemsetD8_v2(addresses[0], 77, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(addresses[0]));
    OK(cuIpcCloseMemHandle(addresses[0]));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(addresses[0]));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(bytes, addresses[0], 1));
    CUipcMemHandle nonsense;
    memset(&nonsense, 'x', sizeof nonsense);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&addresses[0], nonsense, 1));
    send_all(socket, "", 1);
}

CASE(another_process_sees_the_same_bytes)
{
    struct partner other = start_partner(open_two);
    fresh_context();
    CUdeviceptr neighbour = 0;
    CUdeviceptr small = 0;
    CUdeviceptr large = 0;
    static char bytes[3 * MIB];
    OK(cuMemAlloc_v2(&neighbour, 1000));
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemAlloc_v2(&large, sizeof bytes));
    paint(bytes, 1000, 1);
    OK(cuMemcpyHtoD_v2(small, bytes, 1000));
    paint(bytes, sizeof bytes, 2);
    OK(cuMemcpyHtoD_v2(large, bytes, sizeof bytes));
    OK(cuMemsetD8_v2(neighbour, 33, 1000));
    CUipcMemHandle handles[2];
    OK(cuIpcGetMemHandle(&handles[0], small));
    OK(cuIpcGetMemHandle(&handles[1], large + 5)); /* anywhere inside */
    OK(cuMemcpyDtoH_v2(bytes, large, sizeof bytes));
    CHECK(is_painted(bytes, sizeof bytes, 2)); /* moving it has changed nothing */
    CUdeviceptr own = 0;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&own, handles[0], 1));
    send_all(other.socket, handles, sizeof handles);
    receive_all(other.socket, bytes, 1);
    OK(cuMemcpyDtoH_v2(bytes, small, 1000));
    CHECK(bytes[0] == 77 && bytes[999] == 77);
    OK(cuMemcpyDtoH_v2(bytes, neighbour, 1000));
    CHECK(bytes[0] == 33 && bytes[999] == 33);
    await_partner(other);
    CHECK_EQUAL(files_beside_the_node(), 2);
    OK(cuMemFree_v2(small));
    OK(cuMemFree_v2(neighbour));
    OK(cuMemFree_v2(large));
    CHECK_EQUAL(files_beside_the_node(), 0);
    OK(cuMemAlloc_v2(&large, sizeof bytes)); /* the same addresses, private again */
    OK(cuMemsetD8_v2(large, 1, sizeof bytes));
}

CASE(only_plain_allocations_have_handles)
{
    fresh_context();
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    OK(cuMemAllocManaged(&address, 1000, CU_MEM_ATTACH_GLOBAL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, address));
    OK(cuMemAllocAsync(&address, 1000, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, address));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, address));
}

static void export_and_wait(int socket)
{
    CUdeviceptr address = 0;
    CUipcMemHandle handle;
    fresh_context();
    OK(cuMemAlloc_v2(&address, 1000));
    OK(cuIpcGetMemHandle(&handle, address));
    send_all(socket, "", 1);
    receive_all(socket, &handle, 1); /* never comes */
}

CASE(what_a_killed_exporter_left_is_removed)
{
    char byte = 0;
    struct partner exporter = start_partner(export_and_wait);
    receive_all(exporter.socket, &byte, 1);
    CHECK_EQUAL(files_beside_the_node(), 1);
    CHECK(kill(exporter.process, SIGKILL) == 0);
    CHECK(waitpid(exporter.process, NULL, 0) == exporter.process);
    CHECK_EQUAL(files_beside_the_node(), 1);
    CUdeviceptr address = 0;
    CUipcMemHandle handle;
    fresh_context();
    OK(cuMemAlloc_v2(&address, 1000));
    OK(cuIpcGetMemHandle(&handle, address));
    CHECK_EQUAL(files_beside_the_node(), 1); /* ours */
    OK(cuMemFree_v2(address));
    CHECK_EQUAL(files_beside_the_node(), 0);
}

static void answer_with_an_event(int socket)
{
    CUipcEventHandle handle;
    CUevent event = NULL;
    CUstream stream = NULL;
    fresh_context();
    receive_all(socket, &handle, sizeof handle);
    OK(cuIpcOpenEventHandle(&event, handle));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuStreamSynchronize(stream)); /* the other process's work is over */
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(cuEventRecord(event, stream)); /* and now it is ours */
    OK(cuStreamSynchronize(stream));
    send_all(socket, "", 1);
    receive_all(socket, &handle, 1);
    memset(&handle, 'x', sizeof handle);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&event, handle));
}

static void hold_the_stream_up(void *released)
{
    while (__atomic_load_n((int *)released, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
}

CASE(an_event_orders_two_processes)
{
    struct partner other = start_partner(answer_with_an_event);
    fresh_context();
    CUevent plain = NULL;
    CUevent event = NULL;
    CUstream stream = NULL;
    CUipcEventHandle handle;
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(&handle, plain));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    static int released;
    OK(cuLaunchHostFunc(stream, hold_the_stream_up, &released));
    OK(cuEventRecord(event, stream));
    OK(cuIpcGetEventHandle(&handle, event));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    send_all(other.socket, &handle, sizeof handle);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    char byte = 0;
    receive_all(other.socket, &byte, 1);
    OK(cuEventSynchronize(event)); /* what the other process recorded last */
    CHECK_EQUAL(files_beside_the_node(), 1);
    OK(cuEventDestroy_v2(event));
    CHECK_EQUAL(files_beside_the_node(), 0);
    send_all(other.socket, "", 1);
    await_partner(other);
}

static void record_and_wait(int socket)
{
    CUevent event = NULL;
    CUstream stream = NULL;
    CUipcEventHandle handle;
    static int never;
    fresh_context();
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, hold_the_stream_up, &never));
    OK(cuEventRecord(event, stream));
    OK(cuIpcGetEventHandle(&handle, event));
    send_all(socket, &handle, sizeof handle);
    receive_all(socket, &handle, 1); /* never comes */
}

CASE(nobody_waits_for_a_dead_process)
{
    struct partner recorder = start_partner(record_and_wait);
    CUipcEventHandle handle;
    CUevent event = NULL;
    receive_all(recorder.socket, &handle, sizeof handle);
    fresh_context();
    OK(cuIpcOpenEventHandle(&event, handle));
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuStreamWaitEvent(NULL, event, 0));
    CHECK(kill(recorder.process, SIGKILL) == 0);
    CHECK(waitpid(recorder.process, NULL, 0) == recorder.process);
    OK(cuEventSynchronize(event));
    OK(cuCtxSynchronize());
    OK(cuEventDestroy_v2(event));
    /* The next one who shares an event removes what the dead one left. */
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(&handle, event));
    CHECK_EQUAL(files_beside_the_node(), 1);
    OK(cuEventDestroy_v2(event));
}

CASE(external_memory_is_a_file)
{
    fresh_context();
    const size_t before = free_bytes();
    char name[] = "/tmp/external-XXXXXX";
    const int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, 64 * KIB) == 0);
    const int kept = dup(file);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = file, .size = 65 * KIB};
    CUexternalMemory memory = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&memory, &description));
    description.size = 64 * KIB;
    OK(cuImportExternalMemory(&memory, &description));
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = 4 * KIB, .size = 8 * KIB};
    CUdeviceptr address = 0;
    OK(cuExternalMemoryGetMappedBuffer(&address, memory, &part));
    OK(cuMemsetD8_v2(address, 5, 8 * KIB));
    CHECK_EQUAL(free_bytes(), before);
    char byte = 0;
    CHECK(pread(kept, &byte, 1, 4 * KIB) == 1 && byte == 5);
    CHECK(pread(kept, &byte, 1, 4 * KIB - 1) == 1 && byte == 0);
    OK(cuMemFree_v2(address));
    OK(cuDestroyExternalMemory(memory));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
    CUexternalSemaphore semaphore = NULL;
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC other = {
        .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = kept};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalSemaphore(&semaphore, &other));
}
