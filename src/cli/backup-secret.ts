import { chmodSync, copyFileSync, existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';

import { OperationError } from '../accounts/operation.ts';
import { openSecret, secretIdOf } from '../accounts/secret.ts';
import type { Config } from '../config/config.ts';
import { stamp, syncFile } from '../store/sqlite/backup.ts';

/** Keys are stored as hashes with a secret, so a copy of the database alone gives no access. */
export const secretBeside = (backup: string): string => `${backup}.secret`;
export const secretFile = (config: Config): string => path.join(config.storage.directory, 'secret');

/** The secret that the restored keys will be checked with. Refuses if no key would work. */
export function secretFor(
  pepperIds: readonly string[],
  { source, shown }: { readonly source: string; readonly shown: string },
  config: Config,
  fromEnvironment: string | undefined,
): 'as it is' | 'of the backup' {
  if (pepperIds.length === 0) return 'as it is';
  const matches = (id: string | undefined): boolean => id !== undefined && pepperIds.every((needed) => needed === id);
  if (fromEnvironment !== undefined) {
    const { id } = openSecret({ fromEnvironment, dataFolder: config.storage.directory, warn: () => {} });
    if (matches(id)) return 'as it is';
    throw new OperationError(
      `The keys in ${shown} were created with another secret (${pepperIds.join(', ')}) than TOKENHOUSE_SECRET (${id}). Set it to the earlier secret.`,
    );
  }
  if (matches(secretIdOf(secretFile(config)))) return 'as it is';
  if (matches(secretIdOf(secretBeside(source)))) return 'of the backup';
  throw new OperationError(
    `The keys in ${shown} were created with a secret (${pepperIds.join(', ')}) that is neither in ${secretFile(config)} nor in ${secretBeside(shown)}, so none of them would work. ` +
      'Put the earlier secret into one of the two files, or into TOKENHOUSE_SECRET.',
  );
}

/** Puts the backup's secret in place; the old one is kept under another name. */
export function takeSecret(source: string, config: Config, now: Date): string | undefined {
  const target = secretFile(config);
  const kept = existsSync(target) ? `${target}.before-restore-${stamp(now)}` : undefined;
  if (kept !== undefined) copySecret(target, kept);
  copySecret(secretBeside(source), target);
  return kept;
}

export function copySecret(from: string, to: string): void {
  const draft = `${to}.part`;
  try {
    copyFileSync(from, draft);
    chmodSync(draft, 0o600);
    syncFile(draft);
    renameSync(draft, to);
    syncFile(path.dirname(to));
  } finally {
    rmSync(draft, { force: true });
  }
}
