import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { TestService } from '../support/service.ts';
import { differencesOf, openStore } from '../store/fixture.ts';
import { model } from './asked.ts';
import type { Place } from './month.ts';

export const secret = 'a secret of thirty-two characters';

/** On a file of SQLite that goes away. */
export function sqlitePlace(t: TestContext): Place {
  const service = new TestService({ config: model, environment: { TOKENHOUSE_SECRET: secret } });
  t.after(() => service.dispose());
  const file = join(service.folder, 'data', 'tokenhouse.db');
  return { service, open: (free) => openStore(t, file, { free }), differences: () => differencesOf(file) };
}
