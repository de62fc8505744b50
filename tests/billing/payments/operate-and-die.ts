/**
 * Carries out an operation of the ledger, and is killed at the statement that its arguments name: `FILE OPERATION COUNT`, the
 * operation in a file, as `v8.serialize` writes it.
 */
import { readFileSync } from 'node:fs';
import { deserialize } from 'node:v8';

import { openConnection, type Connection } from '../../../src/store/sqlite/connection.ts';
import type { LedgerOperation } from '../../../src/store/sqlite/ledger-batch.ts';
import { LedgerWriter } from '../../../src/store/sqlite/ledger-writer.ts';

const [file = '', operationFile = '', count = ''] = process.argv.slice(2);
let left = Number(count);
const connection = openConnection(file);
const operation = deserialize(readFileSync(operationFile)) as LedgerOperation;

const dying = new Proxy(connection, {
  get: (target, name) => {
    const value: unknown = Reflect.get(target, name);
    if (typeof value !== 'function') return value;
    if (name !== 'prepare') return value.bind(target) as unknown;
    return (text: string) => {
      const statement = target.prepare(text);
      return new Proxy(statement, {
        get: (inner, method) => {
          const call: unknown = Reflect.get(inner, method);
          if (method !== 'run' || typeof call !== 'function')
            return typeof call === 'function' ? call.bind(inner) : call;
          return (...values: unknown[]): unknown => {
            if (--left === 0) process.kill(process.pid, 'SIGKILL');
            return (call as (...values: unknown[]) => unknown).apply(inner, values);
          };
        },
      });
    };
  },
}) as Connection;

const writer = new LedgerWriter(dying);
const reply = writer.write({
  ids: new Uint8Array(0),
  rows: [],
  opens: [],
  operations: [operation],
});
const inText = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
process.stdout.write(JSON.stringify(reply.results[0], inText));
writer.close();
