/* cc -o pods pods.c && ./pods SOCKET
 * HTTP/1.0, so that the answer ends with the connection. Use libcurl for more than this. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static FILE *ask(const char *path, const char *method, const char *url, const char *body) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) { perror(path); _exit(1); }
    dprintf(fd, "%s %s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method, url, strlen(body), body);
    FILE *answer = fdopen(fd, "r");
    char line[512];
    while (fgets(line, sizeof line, answer) && strcmp(line, "\r\n") != 0) {} /* the header */
    return answer;
}

int main(int argc, char **argv) {
    static char line[1 << 22]; /* an event has a whole pod */
    FILE *answer = ask(argv[argc - 1], "GET", "/whois?q=kube-system/etcd-node-1", "");
    if (fgets(line, sizeof line, answer)) printf("%.45s\n", strstr(line, "podUID") ? strstr(line, "podUID") : line);
    fclose(answer);
    int count = 0;
    answer = ask(argv[argc - 1], "POST", "/whois", "default/static-web-node-1\nkube-system/etcd-node-1\n");
    while (fgets(line, sizeof line, answer)) count += strstr(line, "\"found\":true") != NULL;
    printf("%d\n", count);
    fclose(answer);
    answer = ask(argv[argc - 1], "GET", "/api/v1/pods?watch=true", "");
    for (int event = 0; event < 3 && fgets(line, sizeof line, answer); event++) printf("%.15s\n", line);
    return 0;
}
