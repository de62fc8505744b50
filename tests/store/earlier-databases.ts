/**
 * Databases as earlier revisions of the program have left them, each after some requests, payments, keys and budgets: e2c9a07 had
 * steps 001 to 026, 343aeff had 001 to 029. Of SQLite the file, of PostgreSQL what pg_dump printed.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { inRepository } from '../support/repository.ts';

export const earlierDatabases = ['026', '029'] as const;
export type EarlierDatabase = (typeof earlierDatabases)[number];

const read = (name: string): Buffer => gunzipSync(readFileSync(inRepository(`tests/fixtures/databases/${name}.gz`)));

export const writeEarlierFile = (name: EarlierDatabase, file: string): void => writeFileSync(file, read(`${name}.db`));

export const earlierDump = (name: EarlierDatabase): string => read(`${name}.sql`).toString();
