/** Our migration has the tables and columns that better-auth asks for with the plugins that are loaded. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { getAuthTables } from 'better-auth/db';

import { createAuth } from '../../../src/accounts/users/auth.ts';
import { Passwords } from '../../../src/accounts/users/password.ts';
import { authTables } from '../../../src/store/repositories/auth.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import { openReadOnly } from '../../../src/store/sqlite/dialect.ts';
import { openStore, temporaryFolder } from '../../store/fixture.ts';

const kinds: Readonly<Record<string, string>> = { string: 'text', boolean: 'flag', number: 'count', date: 'time' };

test('the tables of better-auth are those of the migration', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const { repositories } = await openStore(t, file);
  const nothing = () => Promise.resolve();
  const { options } = createAuth({
    repositories,
    secret: 'x'.repeat(64),
    signIn: { signUp: 'open', oidc: [] },
    accountUrl: 'https://accounts.example.org',
    passwords: new Passwords(),
    now: Date.now,
    sendVerification: nothing,
    sendReset: nothing,
    sendKnown: nothing,
  });
  const asked = Object.fromEntries(
    Object.values(getAuthTables(options)).map(({ modelName, fields }) => [
      modelName,
      Object.fromEntries([
        ['id', 'text'],
        ...Object.entries(fields).map(([name, { fieldName = name, type }]) => [fieldName, kinds[String(type)]]),
      ]),
    ]),
  );
  assert.deepEqual(asked, authTables);

  const db = openReadOnly(file);
  t.after(() => db.destroy());
  const tables = await db.introspection.getTables();
  for (const [name, columns] of Object.entries(authTables)) {
    const table = tables.find((one) => one.name === name);
    assert.deepEqual(
      table?.columns.map((column) => [column.name, column.dataType.toLowerCase()]),
      Object.entries(columns).map(([column, kind]) => [column, kind === 'text' ? 'text' : 'integer']),
    );
    // What better-auth may leave out may be null.
    const { fields } = Object.values(getAuthTables(options)).find(({ modelName }) => modelName === name)!;
    for (const [field, { required }] of Object.entries(fields))
      assert.equal(
        table!.columns.find((one) => one.name === field)!.isNullable,
        required === false,
        `${name}.${field}`,
      );
  }
});

test('nothing but these tables and columns can be reached', async (t) => {
  const { repositories } = await openStore(t, join(temporaryFolder(t), 'x.db'));
  const refused = (error: unknown) => error instanceof StoreError && error.code === 'invalid';
  await assert.rejects(repositories.authStore({ act: 'count', table: 'api_key' as never, where: [] }), refused);
  await assert.rejects(repositories.authStore({ act: 'count', table: '__proto__' as never, where: [] }), refused);
  const where = [{ column: 'id" or 1=1 --', operator: 'eq', value: 'x', connector: 'AND' }] as const;
  await assert.rejects(repositories.authStore({ act: 'find', table: 'auth_user', where, limit: 1 }), refused);
  await assert.rejects(repositories.authStore({ act: 'create', table: 'auth_user', row: { role: 'admin' } }), refused);
});
