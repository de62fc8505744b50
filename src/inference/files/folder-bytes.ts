import { createReadStream } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { BytesError } from './file-bytes.ts';
import type { BytesPart, ByteStream, FileBytes } from './file-bytes.ts';

/**
 * Stores bytes in a folder, one file each, in 256 subfolders by the first digits of their ids. A file gets its name when it is complete and
 * on disk; until then it is `<id>.part`.
 */
export class FolderBytes implements FileBytes {
  /** Bytes waiting between the socket and the disk. */
  readonly memoryPerUploadBytes = 262_144;
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async write(id: string, source: ByteStream, signal: AbortSignal): Promise<void> {
    const { parent, whole, part } = this.#places(id);
    await inWords(() => mkdir(parent, { recursive: true, mode: 0o700 }));
    const handle = await inWords(() => open(part, 'wx', 0o600));
    try {
      for await (const chunk of source) {
        signal.throwIfAborted();
        // `write` may write less than all, as it does when a disk is nearly full.
        for (let from = 0; from < chunk.length;) {
          const { bytesWritten } = await inWords(() => handle.write(chunk, from));
          from += bytesWritten;
        }
      }
      signal.throwIfAborted();
      await inWords(() => handle.sync());
    } finally {
      await handle.close();
    }
    await inWords(() => rename(part, whole));
    await syncFolder(parent);
  }

  async read(id: string, signal: AbortSignal, part?: BytesPart): Promise<Readable> {
    const { whole } = this.#places(id);
    const handle = await inWords(() => open(whole, 'r'));
    const range = part === undefined ? {} : { start: part.from, end: part.from + part.length - 1 };
    return createReadStream('', { fd: handle, signal, ...range });
  }

  async remove(id: string): Promise<void> {
    const { whole, part } = this.#places(id);
    await inWords(() => rm(part, { force: true }));
    await inWords(() => rm(whole, { force: true }));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #places(id: string): { readonly parent: string; readonly whole: string; readonly part: string } {
    if (!/^[0-9a-f]{32}$/.test(id)) throw new Error('an id of a file is 32 hex digits');
    const parent = join(this.#folder, id.slice(0, 2));
    const whole = join(parent, id);
    return { parent, whole, part: `${whole}.part` };
  }
}

/** A file's name is on disk once its folder is synced. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return;
  await inWords(async () => {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  });
}

async function inWords<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOSPC' || code === 'EDQUOT') throw new BytesError('full', 'the disk of the files is full', error);
    if (code === 'ENOENT') throw new BytesError('missing', 'the bytes of a file are not in their folder', error);
    throw new BytesError('failed', `the folder of the files cannot be used (${code ?? 'unknown'})`, error);
  }
}
