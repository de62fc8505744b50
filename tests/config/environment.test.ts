import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import { dataHome, installedFrom, readEnvironment, runnable } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';

describe('the environment', () => {
  it('decides where model files are kept', () => {
    const rows: readonly (readonly [Record<string, string>, string])[] = [
      [{ HOME: '/h' }, '/h/.cache/tokenhouse/models'],
      [{ HOME: '/h', XDG_CACHE_HOME: '/c' }, '/c/tokenhouse/models'],
      [{ HOME: '/h', XDG_CACHE_HOME: '/c', TOKENHOUSE_MODEL_DIR: '/m' }, '/m'],
      [{ HOME: '/h', XDG_CACHE_HOME: '', TOKENHOUSE_MODEL_DIR: '' }, '/h/.cache/tokenhouse/models'],
    ];
    for (const [variables, expected] of rows) assert.equal(readEnvironment(variables).modelDirectory, expected);
    assert.match(readEnvironment({}).modelDirectory, /^\/.*tokenhouse\/models$/, 'also without any variable');
  });

  it('knows where programs keep their data on each platform', () => {
    const none = (): undefined => undefined;
    const given = (name: string): string => `/given/${name}`;
    assert.equal(dataHome(none, '/h', 'linux'), '/h/.local/share');
    assert.equal(dataHome(given, '/h', 'linux'), '/given/XDG_DATA_HOME');
    assert.equal(dataHome(given, '/h', 'darwin'), '/h/Library/Application Support');
    assert.equal(dataHome(given, '/h', 'win32'), '/given/LOCALAPPDATA');
    assert.equal(readEnvironment({ HOME: '/h' }).dataDirectory, undefined, 'a clone keeps them in its folder');
  });

  it('shows no secret, and hands none to child processes', () => {
    const secret = `canary-${'x'.repeat(40)}`;
    const environment = readEnvironment({
      HOME: '/h',
      PATH: '/bin',
      TOKENHOUSE_SECRET: secret,
      HF_TOKEN: 'canary-token',
      PIP_INDEX_URL: 'https://i/s',
    });
    assert.equal(environment.secret?.reveal(), secret);
    assert.equal(environment.hub.token?.reveal(), 'canary-token');
    assert.deepEqual(environment.childVariables, { HOME: '/h', PATH: '/bin', PIP_INDEX_URL: 'https://i/s' });
    assert.doesNotMatch(inspect(environment, { depth: 9 }) + JSON.stringify(environment), /canary/);
  });

  it('takes secrets from files', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-secrets-'));
    const file = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    const long = 'x'.repeat(40);
    const secret = file('secret', `${long}\n`);
    const upstream = file('upstream', 'key-of-upstream\r\n');
    try {
      const environment = readEnvironment({ HOME: '/h', TOKENHOUSE_SECRET_FILE: secret, UPSTREAM_FILE: upstream });
      assert.equal(environment.secret?.reveal(), long);
      assert.equal(environment.variable('TOKENHOUSE_SECRET'), long);
      assert.equal(environment.variable('UPSTREAM'), 'key-of-upstream', 'a variable that the configuration names');
      assert.equal(environment.variable('OTHER'), undefined);
      assert.deepEqual(environment.settings, []);
      const rows: readonly (readonly [Record<string, string>, RegExp])[] = [
        [{ HF_TOKEN_FILE: join(folder, 'none') }, /^HF_TOKEN_FILE: .*none cannot be read \(ENOENT\)/],
        [{ HF_TOKEN_FILE: folder }, /^HF_TOKEN_FILE: .* cannot be read \(EISDIR\)/],
        [{ HF_TOKEN_FILE: file('empty', '\n') }, /empty is empty; write the secret into it/],
        [{ HF_TOKEN_FILE: file('large', 'x'.repeat(70_000)) }, /has more than 65536 bytes/],
        [{ HF_TOKEN_FILE: secret, HF_TOKEN: 'x' }, /HF_TOKEN is set too/],
        [{ TOKENHOUSE_SECRET_FILE: file('short', 'short') }, /^TOKENHOUSE_SECRET: has 5 characters/],
      ];
      for (const [variables, message] of rows) assert.throws(() => readEnvironment(variables), { message });
      const both = readEnvironment({ UPSTREAM_FILE: upstream, UPSTREAM: 'x' });
      assert.throws(() => both.variable('UPSTREAM'), /UPSTREAM_FILE: UPSTREAM is set too/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('refuses what cannot be used, in words', () => {
    assert.throws(
      () => readEnvironment({ HOME: '/h', TOKENHOUSE_SECRET: 'canary', HF_ENDPOINT: 'mirror' }),
      (error) => {
        assert.ok(error instanceof ConfigError);
        assert.deepEqual(
          error.problems.map(({ where }) => where),
          ['TOKENHOUSE_SECRET', 'HF_ENDPOINT'],
        );
        assert.match(error.message, /openssl rand -hex 32/);
        assert.doesNotMatch(error.message, /canary/);
        return true;
      },
    );
  });

  it('knows proxies, colours and where pip is configured', () => {
    const environment = readEnvironment({
      HOME: '/h',
      HTTPS_PROXY: 'http://p:1',
      no_proxy: 'localhost',
      NO_COLOR: '1',
      VIRTUAL_ENV: '/v',
      PIP_CONFIG_FILE: '/p.conf',
    });
    assert.deepEqual(environment.proxy, { http: undefined, https: 'http://p:1', except: 'localhost' });
    assert.equal(environment.color, false);
    assert.deepEqual(environment.packages.configurationFiles.slice(0, 2), ['/p.conf', '/v/pip.conf']);
  });

  it('names commands of how the program was installed', () => {
    const rows = [
      ['file:///opt/tokenhouse/dist/main.js', 'npm start'],
      ['file:///home/a/.npm/_npx/1/node_modules/tokenhouse/dist/main.js', 'tokenhouse serve'],
      ['file:///usr/lib/tokenhouse/node_modules/tokenhouse/dist/main.js', 'systemctl start tokenhouse'],
    ] as const;
    for (const [url, command] of rows) assert.equal(runnable('npm start', {}, installedFrom(url)), command);
  });
});
