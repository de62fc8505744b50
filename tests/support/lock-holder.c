/*
 * Whose lock SQLite would meet that wants a database for itself: the process's id, 0 for nobody. The range is SHARED_FIRST and
 * SHARED_SIZE of SQLite's os.h (with 4 KiB pages and the usual PENDING_BYTE), of which every connection in WAL mode has a shared lock.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
  int file = count == 2 ? open(arguments[1], O_RDWR) : -1;
  struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000002, .l_len = 510};
  if (file < 0 || fcntl(file, F_GETLK, &asked) != 0) {
    perror("fcntl");
    return 1;
  }
  printf("%d\n", asked.l_type == F_UNLCK ? 0 : (int)asked.l_pid);
  return 0;
}
