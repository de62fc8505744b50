import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { checkUrl } from '../../../src/platform/outbound/check-url.ts';
import type { ImageRules } from '../../../src/platform/outbound/check-url.ts';
import { defaultImageRules } from '../../support/image-settings.ts';
import { forbiddenUrls } from './forbidden-urls.ts';

const refused = (url: string, rules: ImageRules = defaultImageRules): void => {
  assert.throws(
    () => checkUrl(url, rules, 'at'),
    (error) => {
      assert.ok(error instanceof ApiError, String(error));
      assert.deepEqual([error.code, error.status, error.param], ['unsupported_value', 400, 'at'], url);
      return true;
    },
    url,
  );
};

test('reliability §3.2, forms 1 to 106: what an address says by itself is enough to refuse it', () => {
  for (const url of forbiddenUrls) refused(url);
});

test('public addresses pass, in whatever way they are written', () => {
  const hosts: Readonly<Record<string, string>> = {
    'https://example.com/a.png': 'example.com',
    'HTTPS://EXAMPLE.com:443/a b.png?x=y#z': 'example.com',
    'https://example.com./a': 'example.com',
    'https://müller.example/a': 'xn--mller-kva.example',
    'https://8.8.8.8/a': '8.8.8.8',
    'https://134744072/a': '8.8.8.8',
    'https://[2606:4700:4700::1111]/a': '2606:4700:4700::1111',
    'https://127.0.0.1.nip.io/': '127.0.0.1.nip.io',
    'https://example.com?user@127.0.0.1': 'example.com',
  };
  for (const [url, host] of Object.entries(hosts)) {
    const target = checkUrl(url, defaultImageRules, 'at');
    assert.deepEqual([target.host, target.isAllowed], [host, false]);
  }
});

test('the operator may switch URLs off, name hosts that may be private, and the service never asks itself', () => {
  refused('https://example.com/a.png', { ...defaultImageRules, fetches: false });
  const rules: ImageRules = {
    fetches: true,
    allowedHosts: new Set(['files.lan', '10.0.0.7:8443', '[fd00::7]:8443']),
    ownHosts: new Set(['tokens.example.org']),
  };
  for (const url of [
    'https://files.lan/a',
    'https://FILES.lan.:443/a',
    'https://10.0.0.7:8443/a',
    'https://[fd00:0::7]:8443/',
  ]) {
    assert.equal(checkUrl(url, rules, 'at').isAllowed, true, url);
  }
  for (const url of [
    'https://files.lan:8443/',
    'https://10.0.0.7/',
    'https://10.0.0.8:8443/',
    'https://a.files.lan/',
    'http://files.lan/',
    'https://user@files.lan/',
    'https://tokens.example.org/v1/models',
    'https://TOKENS.example.org./',
  ])
    refused(url, rules);
});
