import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';

import type { ClientName } from './clients.ts';

/** What was done for a client, so that it can be undone: in the user's data folder, readable by nobody else. */
export interface LaunchRecord {
  readonly client: ClientName;
  readonly keyId: string;
  /** The folder of the service that issued the key. */
  readonly service: string;
  readonly file?: FileRecord | undefined;
}

export interface FileRecord {
  readonly path: string;
  /** Mode of the original file, whose backup is beside the record; undefined if there was none. */
  readonly mode: number | undefined;
  /** Folders that were created for it, innermost first. */
  readonly folders: readonly string[];
  readonly sha256Before: string;
  readonly sha256After: string;
  /** Whether something else was changed between two launches, which restoring the old file would lose. */
  readonly isEdited: boolean;
}

export const sha256 = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');

/** The records of this user. */
export class LaunchRecords {
  readonly #folder: string;

  constructor(userDataDirectory: string) {
    this.#folder = path.join(userDataDirectory, 'launch');
  }

  read(client: ClientName): LaunchRecord | undefined {
    const file = this.#recordFile(client);
    return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as LaunchRecord) : undefined;
  }

  /** Path of the backup of the original file. */
  originalFile(client: ClientName): string {
    return path.join(this.#folder, `${client}.original`);
  }

  /** Path of the backup of a changed file that the original replaced. */
  changedFile(client: ClientName): string {
    return path.join(this.#folder, `${client}.changed`);
  }

  write(record: LaunchRecord, original?: Buffer): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    if (original !== undefined) writeWhole(this.originalFile(record.client), original, 0o600);
    writeWhole(this.#recordFile(record.client), Buffer.from(JSON.stringify(record, null, 2)), 0o600);
  }

  remove(client: ClientName): void {
    rmSync(this.#recordFile(client), { force: true });
    rmSync(this.originalFile(client), { force: true });
  }

  #recordFile(client: ClientName): string {
    return path.join(this.#folder, `${client}.json`);
  }
}

const fileBytesMax = 4 * 1024 * 1024;

export interface FoundFile {
  /** The target, if it is a link. */
  readonly path: string;
  readonly bytes: Buffer | undefined;
  readonly mode: number | undefined;
}

/** The file of a client; links are followed, because many keep such files elsewhere. */
export function findFile(named: string): FoundFile {
  if (!existsSync(named)) return { path: named, bytes: undefined, mode: undefined };
  const file = realpathSync(named);
  const { size, mode } = statSync(file);
  if (size > fileBytesMax) throw new Error(`${file} has ${size} bytes, which is no configuration`);
  return { path: file, bytes: readFileSync(file), mode: mode & 0o7777 };
}

/** Folders that have to be created for this file, innermost first. */
export function missingFolders(file: string): readonly string[] {
  const folders: string[] = [];
  for (let folder = path.dirname(file); !existsSync(folder); folder = path.dirname(folder)) folders.push(folder);
  return folders;
}

/** Writes atomically: a client reads the old file or the new one, and a computer that stops leaves one of them. */
export function writeWhole(file: string, bytes: Buffer, mode: number): void {
  mkdirSync(path.dirname(file), { recursive: true });
  const draft = `${file}.${randomBytes(6).toString('hex')}.new`;
  try {
    const descriptor = openSync(draft, 'wx', mode);
    try {
      for (let at = 0; at < bytes.length;) at += writeSync(descriptor, bytes, at);
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    // Not less than requested either, whatever the process's umask.
    chmodSync(draft, mode);
    renameSync(draft, file);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Puts everything back as it was before the first launch. */
export function putBack({ path: file, mode, folders }: FileRecord, original: Buffer | undefined): void {
  if (original !== undefined && mode !== undefined) return writeWhole(file, original, mode);
  rmSync(file, { force: true });
  for (const folder of folders) {
    try {
      rmdirSync(folder);
    } catch {
      // It now contains something else.
      return;
    }
  }
  return undefined;
}
