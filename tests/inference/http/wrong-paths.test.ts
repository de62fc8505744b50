/** What each host says of a path that it does not have; whole services are in `no-route.test.ts`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { noAccountRoute, noInferenceRoute } from '../../../src/inference/http/no-route.ts';

const [account, inference] = ['https://account.example', 'https://inference.example'];
const everything = /^Route not found\. This host has \/v1\/.*; GET \/openapi\.json describes them\.$/;
const baseUrl = "The base URL of OpenAI's clients ends in /v1, that of Anthropic's is the address alone.";

test('the inference host: a route or a page of the other one, a route with a wrong base URL, or all that there are', () => {
  for (const [path, said] of [
    ['/v1/keys', `Accounts, keys and credit are on the account host: use ${account}/v1/keys.`],
    ['/v1/keys/key_1', `Accounts, keys and credit are on the account host: use ${account}/v1/keys.`],
    ['/topup', `This page is at ${account}/topup.`],
    ['/heads/2026-11-28', `This page is at ${account}/heads.`],
    ['/chat/completions', `Use /v1/chat/completions. ${baseUrl}`],
    ['/v1/v1//messages/', `Use /v1/messages. ${baseUrl}`],
    ['/OpenAI/v2/responses', `Use /v1/responses. ${baseUrl}`],
    ['/', everything],
    ['/v1', everything],
    ['/v1/nothing', everything],
    ['/keys', everything],
    ['/v2/keys', everything],
    ['/other/chat/completions', everything],
    ['/v1/chat/completions/more', everything],
  ] as const) {
    const { code, message } = noInferenceRoute(path, account);
    assert.equal(code, 'http_404');
    if (typeof said === 'string') assert.equal(message, `Route not found. ${said}`, path);
    else assert.match(message, said, path);
  }
});

test('the account host: a route of the other one, or one without /v1; of another path it says nothing', () => {
  for (const [path, url, said] of [
    ['/v1/messages', inference, `Models are called at the inference host: use ${inference}/v1/messages.`],
    ['/messages', inference, `Models are called at the inference host: use ${inference}/v1/messages.`],
    ['/messages', undefined, 'Models are called at the inference host: use its address, and there /v1/messages.'],
    ['/keys', inference, 'Use /v1/keys.'],
    ['/keys/key_1', inference, 'Use /v1/keys.'],
    // A page that has a route's name, and what lies below it.
    ['/heads', inference, undefined],
    ['/heads/2026-11-28', inference, 'Use /v1/heads.'],
    ['/', inference, undefined],
    ['/welcome', inference, undefined],
    ['/nothing', inference, undefined],
    ['/v1/keys/key_1', inference, undefined],
    ['/other/messages', inference, undefined],
  ] as const) {
    const found = noAccountRoute(path, url);
    assert.equal(found?.message, said === undefined ? undefined : `Route not found. ${said}`, path);
  }
});
