/** LibreChat needs a MongoDB and is no package of a registry; what it accepts in `librechat.yaml` is one. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { parse } from 'yaml';

import { temporaryFolder } from '../../store/fixture.ts';
import { runProcess } from '../../support/command.ts';
import { scriptedModel, TestService } from '../../support/service.ts';

interface ConfigSchema {
  safeParse(config: unknown): { readonly error?: unknown; readonly data?: unknown };
}

const service = new TestService({ config: scriptedModel('- say: [ { text: "Hello." } ]') });
before(() => service.start());
after(() => service.dispose());

test('LibreChat knows every name in the file that is written for it', async (t) => {
  const home = temporaryFolder(t);
  const config = ['--config', join(service.folder, 'tokenhouse.yaml')];
  const done = await runProcess(home, ['launch', 'librechat', '--yes', ...config], { HOME: home, XDG_DATA_HOME: '' });
  assert.equal(done.code, 0, done.stderr);
  const written = parse(readFileSync(join(home, 'librechat.yaml'), 'utf8')) as {
    readonly endpoints: { readonly custom: readonly object[] };
  };
  const { configSchema } = createRequire(join(process.env['TOKENHOUSE_TEST_LIBRECHAT']!, 'package.json'))(
    'librechat-data-provider',
  ) as { readonly configSchema: ConfigSchema };
  const read = (custom: object): unknown => {
    const { error, data } = configSchema.safeParse({ ...written, endpoints: { custom: [custom] } });
    assert.equal(error, undefined);
    return (data as typeof written).endpoints.custom[0];
  };
  const ours = written.endpoints.custom[0]!;
  // It leaves out what it does not know.
  assert.deepEqual(read(ours), ours);
  assert.deepEqual(read({ ...ours, base_url: 'x' }), ours);
});
