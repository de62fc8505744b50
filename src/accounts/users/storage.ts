import { createAdapterFactory } from 'better-auth/adapters';

import { authOperators, authTables } from '../../store/repositories/auth.ts';
import type { AuthCondition, AuthRow, AuthTable, AuthValue } from '../../store/repositories/auth.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { sessionInWhich } from './in-session.ts';

interface CleanWhere {
  readonly field: string;
  readonly operator?: string | undefined;
  readonly value: unknown;
  readonly connector?: 'AND' | 'OR' | undefined;
}

const rowsMax = 1000;

/**
 * The storage adapter of better-auth: each of its calls is one request to the repositories, so no SQL runs on the main thread. It has no
 * transactions, because better-auth would hash a password inside one (decision 014).
 */
export function authStorage(repositories: Pick<Repositories, 'authStore'>) {
  return createAdapterFactory({
    config: {
      adapterId: 'tokenhouse',
      adapterName: 'Tokenhouse',
      supportsBooleans: true,
      supportsDates: true,
      supportsJSON: false,
      supportsNumericIds: false,
      transaction: false,
    },
    adapter: () => ({
      create: async ({ model, data }) => {
        const table = tableOf(model);
        const { rows } = await repositories.authStore({ act: 'create', table, row: rowOf(data) });
        return valuesOf(table, rows[0]!) as never;
      },
      findOne: async ({ model, where }) => {
        const table = tableOf(model);
        const { rows } = await repositories.authStore({ act: 'find', table, where: conditionsOf(where), limit: 1 });
        return (rows[0] === undefined ? null : valuesOf(table, rows[0])) as never;
      },
      findMany: async ({ model, where, limit, offset, sortBy }) => {
        const table = tableOf(model);
        const { rows } = await repositories.authStore({
          act: 'find',
          table,
          where: conditionsOf(where ?? []),
          limit: Math.min(limit, rowsMax),
          offset,
          sortBy: sortBy === undefined ? undefined : { column: sortBy.field, direction: sortBy.direction },
        });
        return rows.map((row) => valuesOf(table, row)) as never;
      },
      count: async ({ model, where }) => {
        const table = tableOf(model);
        return (await repositories.authStore({ act: 'count', table, where: conditionsOf(where ?? []) })).count;
      },
      update: async ({ model, where, update }) => {
        const table = tableOf(model);
        const set = rowOf(update as Readonly<Record<string, unknown>>);
        const { rows } = await repositories.authStore({
          act: 'update',
          table,
          where: conditionsOf(where),
          set,
          many: false,
          sessionId: sessionInWhich(),
        });
        return (rows[0] === undefined ? null : valuesOf(table, rows[0])) as never;
      },
      updateMany: async ({ model, where, update }) => {
        const table = tableOf(model);
        const set = rowOf(update as Readonly<Record<string, unknown>>);
        return (await repositories.authStore({ act: 'update', table, where: conditionsOf(where), set, many: true }))
          .count;
      },
      delete: async ({ model, where }) => {
        await repositories.authStore({ act: 'delete', table: tableOf(model), where: conditionsOf(where), one: false });
      },
      deleteMany: async ({ model, where }) =>
        (await repositories.authStore({ act: 'delete', table: tableOf(model), where: conditionsOf(where), one: false }))
          .count,
      consumeOne: async ({ model, where }) => {
        const table = tableOf(model);
        const { rows } = await repositories.authStore({ act: 'delete', table, where: conditionsOf(where), one: true });
        return (rows[0] === undefined ? null : valuesOf(table, rows[0])) as never;
      },
      incrementOne: async ({ model, where, increment, set }) => {
        const table = tableOf(model);
        const { rows } = await repositories.authStore({
          act: 'update',
          table,
          where: conditionsOf(where),
          set: rowOf(set ?? {}),
          add: increment,
          many: false,
        });
        return (rows[0] === undefined ? null : valuesOf(table, rows[0])) as never;
      },
    }),
  });
}

function tableOf(model: string): AuthTable {
  if (!Object.hasOwn(authTables, model)) throw new Error(`better-auth asks for the table ${model}, which there is not`);
  return model as AuthTable;
}

function rowOf(values: Readonly<Record<string, unknown>>): AuthRow {
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [[name, stored(value)]])),
  );
}

function conditionsOf(where: readonly CleanWhere[]): readonly AuthCondition[] {
  return where.map(({ field, operator = 'eq', value, connector = 'AND' }) => {
    const known = authOperators.find((one) => one === operator);
    if (known === undefined) throw new Error(`better-auth compares by ${operator}, which there is not`);
    return {
      column: field,
      operator: known,
      value: Array.isArray(value) ? value.map(stored) : stored(value),
      connector,
    };
  });
}

function stored(value: unknown): AuthValue {
  if (value instanceof Date) return value.getTime();
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (value === null || value === undefined) return null;
  if (typeof value === 'string' || typeof value === 'number') return value;
  throw new Error('better-auth stores a value that is neither a text, a number, a flag nor a time');
}

const valuesOf = (table: AuthTable, row: AuthRow): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      if (value === null) return [name, null];
      const kind = authTables[table][name];
      if (kind === 'flag') return [name, value === 1];
      return [name, kind === 'time' ? new Date(Number(value)) : value];
    }),
  );
