import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';

export interface HashOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of bytes read so far. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

/**
 * Returns the SHA-256 of a file. It is computed once and remembered in `directory` for as long as size, times and inode of the file stay
 * the same: the second start of the service does not read gigabytes again.
 */
export async function rememberedSha256(file: string, directory: string, options: HashOptions = {}): Promise<string> {
  const before = await identityOf(file);
  const memory = memoryOf(file, directory);
  const remembered = await recall(memory);
  if (remembered?.identity === before) return remembered.sha256;
  const sha256 = await sha256OfFile(file, options);
  // A file that changed while it was read is not remembered, whatever the result.
  if ((await identityOf(file)) === before) await remember(memory, { file, identity: before, sha256 });
  return sha256;
}

/** Remembers a hash that was computed while the file was written. */
export async function rememberSha256(file: string, sha256: string, directory: string): Promise<void> {
  await remember(memoryOf(file, directory), { file, identity: await identityOf(file), sha256 });
}

export async function sha256OfFile(file: string, { signal, onBytes }: HashOptions = {}): Promise<string> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of createReadStream(file, {
    highWaterMark: 1 << 20,
    ...(signal === undefined ? {} : { signal }),
  })) {
    hash.update(chunk as Buffer);
    onBytes?.((bytes += (chunk as Buffer).length));
  }
  return hash.digest('hex');
}

interface Memory {
  readonly file: string;
  readonly identity: string;
  readonly sha256: string;
}

async function identityOf(file: string): Promise<string> {
  const { size, mtimeNs, ctimeNs, ino } = await stat(file, { bigint: true });
  return [size, mtimeNs, ctimeNs, ino].join('-');
}

function memoryOf(file: string, directory: string): string {
  return path.join(
    directory,
    '.verified',
    `${createHash('sha256').update(path.resolve(file)).digest('hex').slice(0, 32)}.json`,
  );
}

async function recall(memory: string): Promise<Memory | undefined> {
  try {
    const { file, identity, sha256 } = JSON.parse(await readFile(memory, 'utf8')) as Partial<Memory>;
    if (file === undefined || identity === undefined || sha256 === undefined || !/^[0-9a-f]{64}$/.test(sha256))
      return undefined;
    return { file, identity, sha256 };
  } catch {
    return undefined; // Missing or damaged: the file is read again.
  }
}

/** Writes the entry. A failure only costs time at the next start: the folder may be read-only. */
async function remember(memory: string, entry: Memory): Promise<void> {
  const draft = `${memory}.${process.pid}`;
  try {
    await mkdir(path.dirname(memory), { recursive: true });
    await writeFile(draft, JSON.stringify(entry));
    await rename(draft, memory);
  } catch {
    return;
  }
}
