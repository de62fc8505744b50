import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import { readEnvironment } from '../../src/config/environment.ts';
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

  it('warns about variables of ours that nothing reads', () => {
    const { warnings } = readEnvironment({
      HOME: '/h',
      TOKENHOUSE_MODEL_DRI: 'x',
      TOKENHOUSE_FROBNICATE: 'x',
      TOKENHOUSE_KEY: 'x',
      OTHER: 'x',
    });
    assert.deepEqual(
      warnings.map(({ where }) => where),
      ['TOKENHOUSE_MODEL_DRI', 'TOKENHOUSE_FROBNICATE'],
    );
    assert.match(warnings[0]!.what, /did you mean TOKENHOUSE_MODEL_DIR\?/);
    assert.match(warnings[1]!.what, /known variables are TOKENHOUSE_SECRET/);
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
});
