/** What tests need of the machine to cause real faults. */
import { spawnSync } from 'node:child_process';
import type { TestContext } from 'node:test';

const needs = {
  mount: {
    works: () => spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0,
    repair: 'file systems of its own (Linux, `unshare -rm mount`): run as root, or in a container that may mount',
  },
  strace: {
    works: () =>
      spawnSync('strace', ['-qq', '-o', '/dev/null', '-e', 'inject=fdatasync:error=EIO:when=99', 'true']).status === 0,
    repair: 'strace, and the right to trace: apt-get install strace; in a container --cap-add SYS_PTRACE',
  },
  fifo: { works: () => spawnSync('mkfifo', ['--version']).status === 0, repair: 'mkfifo, of GNU coreutils' },
} as const;

/**
 * Whether the test can cause its fault here. Where not, it is skipped with the reason, and on CI (the variable `CI` is set)
 * it fails with it: a fault that nobody causes proves nothing.
 */
export function canCause(t: TestContext, need: keyof typeof needs): boolean {
  const { works, repair } = needs[need];
  if (works()) return true;
  const reason = `needs ${repair}`;
  if (process.env['CI'] !== undefined) throw new Error(reason);
  t.skip(reason);
  return false;
}
