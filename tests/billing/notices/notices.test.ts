import { join } from 'node:path';

import { differencesOf, openStore, temporaryFolder } from '../../store/fixture.ts';
import { noticeClaims } from './claims.ts';

noticeClaims(async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  return {
    store,
    differences: () => differencesOf(file),
    hold: () => Promise.reject(new Error('nothing runs here')),
    release: () => {},
  };
});
