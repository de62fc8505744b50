/** Where the account host says that models are called. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readEnvironment } from '../../src/config/environment.ts';
import { inferenceUrlFor } from '../../src/config/public-url.ts';
import { readConfig } from '../../src/config/read.ts';

const open = 'inference: { host: 0.0.0.0 }, account: { host: 0.0.0.0 }';

test('models are called where the console was opened, unless an address is configured or only this computer is served', () => {
  const table: readonly (readonly [string, string | undefined, string])[] = [
    [open, '192.168.1.5:8081', 'http://192.168.1.5:9000'],
    [open, 'tokens.lan', 'http://tokens.lan:9000'],
    [open, 'Tokens.LAN:8081', 'http://tokens.lan:9000'],
    [open, '[fd00::1]:8081', 'http://[fd00::1]:9000'],
    [open, 'localhost:8081', 'http://localhost:9000'],
    [open, undefined, 'http://localhost:9000'],
    // What is no host, or would say more in a header than a host.
    ...['', 'a b', 'a/b', 'a@b', 'a;b', "a'b", 'a,b', 'a:b', 'a:99999', '[::1', 'a#b', 'a?b', 'a\\b', '%61'].map(
      (host) => [open, host, 'http://localhost:9000'] as const,
    ),
    ['inference: {}, account: { host: 0.0.0.0 }', '192.168.1.5:8081', 'http://localhost:9000'],
    ['inference: { host: 0.0.0.0, public_url: "https://a.example" }', '192.168.1.5:8081', 'https://a.example'],
    [
      'inference: { host: 0.0.0.0 }, account: { host: 0.0.0.0, public_url: "https://b.example" }',
      'b.example',
      'http://localhost:9000',
    ],
  ];
  for (const [server, host, url] of table) {
    const config = readConfig(`server: { ${server} }`, { directory: '/', environment: readEnvironment({ HOME: '/' }) });
    assert.equal(inferenceUrlFor(config.server, 9000, host), url, `${server}, Host: ${host}`);
  }
});
