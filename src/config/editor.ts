import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';

import { diffLines } from '../platform/diff.ts';
import type { SchemaNode } from '../platform/schema-node.ts';
import type { Config } from './config.ts';
import { masked } from './masked.ts';
import { ConfigError } from './problem.ts';
import type { ReloadOutcome } from './reload-outcome.ts';

/** A change that is not made; nothing was written. */
export class EditRefused extends Error {
  override readonly name = 'EditRefused';
}

export const changedSince = 'The configuration file has changed since. Look at the difference again.';

/** What a change makes of the file, or would make of it. */
export interface Edited {
  /** Identifies the text that the change began with; from `save`, the text that was written. */
  readonly digest: string;
  /** As `diff -u` prints it, without secrets; empty: nothing changes. */
  readonly difference: readonly string[];
}

/** Makes a new text of one, whose configuration it is also given. */
export type Change = (text: string, config: Config) => string;

export interface EditorOptions {
  /** Absolute path, which need not exist. */
  readonly file: string;
  readonly schema: SchemaNode;
  /** Reads a text as the service would take it over. Throws `ConfigError`. */
  readonly read: (text: string) => Config;
  readonly reload: () => Promise<ReloadOutcome>;
}

/** Changes of the configuration file by a running service: one at a time, shown before they are made, checked as at a start. */
export class ConfigEditor {
  readonly #options: EditorOptions;
  #underWay: Promise<unknown> = Promise.resolve();

  constructor(options: EditorOptions) {
    this.#options = options;
  }

  get file(): string {
    return this.#options.file;
  }

  /** Identifies the text of the file, so that nobody overwrites what somebody else has written since. */
  get digest(): string {
    return digestOf(textOf(this.file));
  }

  /** Why the file cannot be written; undefined: it can. */
  get problem(): string | undefined {
    const target = targetOf(this.file);
    try {
      if (existsSync(target)) accessSync(target, constants.W_OK);
      // It is replaced by a rename, which is a change of its folder.
      accessSync(nearestFolder(target), constants.W_OK);
      return undefined;
    } catch (error) {
      return unwritable(this.file, error);
    }
  }

  /** Throws `ConfigError` if the service would refuse the result. */
  preview(change: Change): Edited {
    const before = textOf(this.file);
    const { difference } = this.#edited(before, change);
    return { digest: digestOf(before), difference };
  }

  /** Writes the change and takes it over. `digest` is that of the preview; the file is put back if it cannot come into force. */
  async save(change: Change, digest: string): Promise<Edited> {
    const done = this.#underWay.then(() => this.#save(change, digest));
    this.#underWay = done.catch(() => {});
    return await done;
  }

  async #save(change: Change, digest: string): Promise<Edited> {
    const before = existsSync(this.file) ? textOf(this.file) : undefined;
    if (digestOf(before ?? '') !== digest) throw new EditRefused(changedSince);
    const { text, difference } = this.#edited(before ?? '', change);
    if (difference.length === 0) return { digest, difference };
    try {
      // A new file is the service's alone: it may hold the key of a server.
      await takenOver(this.file, before, text, this.#options.reload, 0o600);
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      throw new EditRefused(unwritable(this.file, error), { cause: error });
    }
    return { digest: digestOf(text), difference };
  }

  #edited(before: string, change: Change): { readonly text: string } & Pick<Edited, 'difference'> {
    const { read, schema } = this.#options;
    const text = change(before, read(before));
    read(text);
    return { text, difference: diffLines(masked(before, schema), masked(text, schema)) };
  }
}

/**
 * Replaces the file and takes it over; a text that is refused is taken back, unless somebody has written another one meanwhile.
 * Returns undefined if no service runs. Throws `ConfigError`, or an error of the file system.
 */
export async function takenOver<Outcome extends ReloadOutcome | undefined>(
  file: string,
  before: string | undefined,
  text: string,
  reload: () => Promise<Outcome>,
  newMode = 0o666,
): Promise<Outcome> {
  replaceFile(file, text, newMode);
  const outcome = await reload();
  if (outcome?.kind !== 'refused') return outcome;
  if (textOf(file) === text) {
    if (before === undefined) rmSync(file);
    else replaceFile(file, before, newMode);
  }
  throw new ConfigError(outcome.problems);
}

/** Replaces atomically: a service reads the old file or the new one. Keeps its mode, as it may hold secrets, and a link to it. */
function replaceFile(file: string, text: string, newMode: number): void {
  mkdirSync(path.dirname(file), { recursive: true });
  const target = targetOf(file);
  const mode = existsSync(target) ? statSync(target).mode & 0o777 : undefined;
  const draft = `${target}.new`;
  rmSync(draft, { force: true });
  writeFileSync(draft, text, { mode: mode ?? newMode, flag: 'wx' });
  renameSync(draft, target);
}

const targetOf = (file: string): string => (existsSync(file) ? realpathSync(file) : file);

const textOf = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');

const digestOf = (text: string): string => createHash('sha256').update(text).digest('hex');

function nearestFolder(file: string): string {
  let folder = path.dirname(file);
  while (!existsSync(folder)) folder = path.dirname(folder);
  return folder;
}

function unwritable(file: string, error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'EROFS' || code === 'EACCES' || code === 'EPERM' || code === 'EBUSY')
    return `The service cannot write ${file}: it is read-only here, as a mounted file often is. Change it where it comes from.`;
  return `The service cannot write ${file}${code === undefined ? '' : ` (${code})`}.`;
}
