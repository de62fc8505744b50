import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Longest path of a Unix socket on the systems we run on (macOS: 104 bytes with the terminator). */
const pathBytesMax = 100;

/** The socket on which the running owner of a data folder listens for commands; only its user may connect. */
export function controlSocketPath(dataFolder: string): string {
  const hash = createHash('sha256').update(dataFolder).digest('hex').slice(0, 16);
  if (process.platform === 'win32') return `\\\\.\\pipe\\tokenhouse-${hash}`;
  const path = join(dataFolder, 'control.sock');
  return Buffer.byteLength(path) <= pathBytesMax ? path : join(tmpdir(), `tokenhouse-${hash}.sock`);
}
