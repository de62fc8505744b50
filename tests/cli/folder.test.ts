import assert from 'node:assert/strict';
import { test } from 'node:test';

import { shownPath } from '../../src/cli/folder.ts';

test('a path is shown relative to the folder only where it is shorter so', () => {
  assert.equal(shownPath('/srv/data/x.db', '/srv'), './data/x.db');
  assert.equal(shownPath('/srv', '/srv'), '.');
  assert.equal(shownPath('/elsewhere/data', '/srv'), '/elsewhere/data');
  // As systemd starts a service.
  assert.equal(shownPath('/etc/tokenhouse/tokenhouse.yaml', '/'), '/etc/tokenhouse/tokenhouse.yaml');
});
