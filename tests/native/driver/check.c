/* The frame of the programs that try the simulated driver. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_case *cases;

void register_case(struct test_case *test_case)
{
    struct test_case **end = &cases;
    while (*end != NULL)
        end = &(*end)->next;
    *end = test_case;
}

const char *error_name(CUresult error)
{
    const char *name = NULL;
    cuGetErrorName(error, &name);
    return name != NULL ? name : "an unknown error";
}

CUcontext fresh_context(void)
{
    CUcontext context = NULL;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    return context;
}

size_t free_bytes(void)
{
    size_t free = 0;
    size_t total = 0;
    OK(cuMemGetInfo_v2(&free, &total));
    return free;
}

static unsigned char byte_at(size_t place, unsigned seed)
{
    return (unsigned char)(place * 31 + place / 251 + seed * 101 + 7);
}

void paint(void *bytes, size_t count, unsigned seed)
{
    for (size_t place = 0; place < count; place++)
        ((unsigned char *)bytes)[place] = byte_at(place, seed);
}

bool is_painted(const void *bytes, size_t count, unsigned seed)
{
    for (size_t place = 0; place < count; place++) {
        if (((const unsigned char *)bytes)[place] != byte_at(place, seed))
            return false;
    }
    return true;
}

static void await(int process)
{
    int status = 0;
    CHECK(waitpid(process, &status, 0) == process);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), 0);
}

void in_child(void (*child)(void *), void *argument)
{
    const int process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        child(argument);
        _exit(0);
    }
    await(process);
}

struct partner start_partner(void (*run)(int socket))
{
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    const int process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        close(sockets[0]);
        run(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    return (struct partner){process, sockets[0]};
}

void await_partner(struct partner partner)
{
    close(partner.socket);
    await(partner.process);
}

void send_all(int socket, const void *bytes, size_t count)
{
    CHECK(send(socket, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
}

void receive_all(int socket, void *bytes, size_t count)
{
    CHECK(recv(socket, bytes, count, MSG_WAITALL) == (ssize_t)count);
}

void send_file(int socket, int file)
{
    char byte = 'f';
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

int receive_file(int socket)
{
    char byte = 0;
    int file = -1;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK(recvmsg(socket, &message, 0) == 1);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

int main(int count, char **words)
{
    for (const struct test_case *each = cases; each != NULL; each = each->next) {
        if (count < 2)
            puts(each->name);
        else if (strcmp(each->name, words[1]) == 0) {
            each->run();
            return 0;
        }
    }
    return count < 2 ? 0 : 2;
}
