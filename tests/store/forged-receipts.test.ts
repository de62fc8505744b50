/** Proofs that somebody made who has no key of the service, or has one and lies: whatever they say, nothing of it is proved, and nothing breaks. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkProof, type Known } from '../../src/store/proofs/check-proof.ts';
import {
  accountHeadHash,
  dayHeadText,
  shownColumns,
  signingKeyId,
  usageHash,
  type AccountHead,
  type ShownUsage,
} from '../../src/store/proofs/forms.ts';
import { auditPath, hex, leafHash, treeRoot } from '../../src/store/proofs/merkle.ts';
import type { Proof, SignedHead } from '../../src/store/proofs/prove-row.ts';
import { runCommand } from '../support/command.ts';
import { temporaryFolder } from './fixture.ts';

const date = '2026-11-28';
const day = Date.parse(date);

interface Signer {
  readonly key: KeyObject;
  readonly shown: { readonly id: string; readonly public_key: string };
}

function newSigner(): Signer {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const bytes = Buffer.from(publicKey.export({ format: 'jwk' }).x!, 'base64url');
  return { key: privateKey, shown: { id: signingKeyId(bytes), public_key: bytes.toString('hex') } };
}

const requestOf = (accountId: string, number: number, changes: Partial<ShownUsage> = {}): ShownUsage =>
  ({
    ...Object.fromEntries(shownColumns.map((column) => [column, null])),
    request_id: number.toString(16).padStart(32, '0'),
    public_id: `req_${number}`,
    account_id: accountId,
    started_at: String(day + number),
    ended_at: String(day + number + 1),
    prompt_tokens: '3',
    completion_tokens: '4',
    cost: String(number),
    details: hex(leafHash(`details ${number}`)),
    ...changes,
  }) as ShownUsage;

interface Day {
  readonly date?: string;
  readonly requests?: number;
  readonly accounts?: number;
  readonly at?: number;
  readonly of?: Partial<ShownUsage>;
  readonly head?: Partial<AccountHead>;
  readonly previous?: string | null;
}

/** The proof of request `at` of the first account, as the service would make it, or with something else in what is signed. */
function proofBy(signer: Signer, { requests = 5, accounts = 3, at = 1, of = {}, ...rest }: Day = {}): Proof {
  const all = Array.from({ length: requests }, (_, index) => requestOf('acct_a', index, index === at ? of : {}));
  const hashes = all.map(usageHash);
  const signed = rest.date ?? date;
  const head: AccountHead = {
    account_id: 'acct_a',
    date: signed,
    requests: String(requests),
    late: '0',
    cost: '10',
    root: hex(treeRoot(hashes)),
    previous: null,
    ...rest.head,
  };
  const others = Array.from({ length: accounts - 1 }, (_, index) => leafHash(`other ${index}`));
  const heads = [accountHeadHash(head), ...others].sort(Buffer.compare);
  const place = heads.findIndex((one) => hex(one) === hex(accountHeadHash(head)));
  const unsigned = {
    date: signed,
    root: hex(treeRoot(heads)),
    previous: rest.previous ?? null,
    key_id: signer.shown.id,
    signed_at: String(day + 90_000_000),
  };
  const signature = hex(sign(null, Buffer.from(dayHeadText(unsigned)), signer.key));
  return {
    object: 'receipt_proof',
    request: all[at]!,
    request_path: auditPath(hashes, at),
    account_head: head,
    account_path: auditPath(heads, place),
    day_head: { ...unsigned, signature },
    key: signer.shown,
  };
}

const service = newSigner();
const problemOf = (proof: unknown, known: Known = { keys: [service.shown] }): string | undefined =>
  checkProof(typeof proof === 'string' ? proof : JSON.stringify(proof), known).problem;

test('a day of any size proves each of its requests, and the path of one proves no other', () => {
  for (const requests of [1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 300])
    for (const at of new Set([0, Math.floor(requests / 2), requests - 1]))
      for (const accounts of [1, 2, 3])
        assert.equal(problemOf(proofBy(service, { requests, at, accounts })), undefined, `${at} of ${requests}`);
  const [one, two] = [proofBy(service, { at: 1 }), proofBy(service, { at: 2 })];
  assert.match(problemOf({ ...one, request: two.request })!, /^request or request_path was changed/);
  assert.match(problemOf({ ...one, request_path: two.request_path })!, /^request or request_path was changed/);
});

test('every value of a proof that is another one is refused', () => {
  const proof = proofBy(service, { of: { model_id: 'Ä', tier: null }, previous: '1'.repeat(64) });
  let places = 0;
  const change = (value: unknown, put: (changed: unknown) => unknown): void => {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      for (const [name, inner] of Object.entries(value)) {
        change(inner, (changed) => put({ ...value, [name]: changed }));
        const { [name]: _, ...without } = value as Record<string, unknown>;
        assert.ok(problemOf(put(without)) !== undefined, `without ${name}`);
        if (inner !== null) assert.ok(problemOf(put({ ...value, [name]: null })) !== undefined, `${name}: null`);
      }
    } else if (Array.isArray(value)) {
      for (const other of [value.slice(1), value.slice(0, -1), [...value, value[0]], value.toReversed()])
        assert.ok(problemOf(put(other)) !== undefined, JSON.stringify(other));
      for (const [index, inner] of value.entries()) change(inner, (changed) => put(value.with(index, changed)));
    } else {
      const text = value as string | null;
      // The last has the same form to the eye: A and a mark.
      const others = text === null ? ['', 'x'] : [`${text}0`, text.slice(1), text.toUpperCase(), text.normalize('NFD')];
      for (const other of others.filter((one) => one !== text))
        assert.ok(problemOf(put(other)) !== undefined, `${text} → ${other}`);
      places++;
    }
  };
  change(proof, (changed) => changed);
  assert.ok(places > 40, String(places));
});

test('a text is a proof only as it was written: nothing is cut off, doubled or added', () => {
  const text = JSON.stringify(proofBy(service));
  for (let length = 0; length < text.length; length += 7) assert.ok(problemOf(text.slice(0, length)) !== undefined);
  for (const changed of [
    text.replace('"cost":"1"', '"cost":"9","cost":"1"'),
    text.replace('"cost":"1"', '"\\u0063ost":"1"'),
    text.replace('"cost":"1"', '"cost":"1","cost":"9"'),
    text.replace('{', '{"__proto__":{"cost":"9"},'),
    text.replace('"cost":"1"', '"cost":"1","__proto__":null'),
    `${text} `,
    `\ufeff${text}`,
    `[${text}]`,
    text.replace(',', ',\n'),
  ])
    assert.ok(problemOf(changed) !== undefined, changed.slice(0, 200));
  const steps = Array.from({ length: 100_000 }, () => `L:${'0'.repeat(64)}`);
  assert.equal(problemOf({ ...proofBy(service), request_path: steps }), 'request_path is not a path');
});

test('hashes of one level are none of another', () => {
  const proof = proofBy(service, { requests: 4, accounts: 2 });
  // An inner node in the place of a leaf, and a leaf in that of a node.
  assert.ok(problemOf({ ...proof, request_path: proof.request_path.slice(1) }) !== undefined);
  const [step] = proof.account_path;
  assert.ok(problemOf({ ...proof, account_path: [], request_path: [...proof.request_path, step] }) !== undefined);
  // What the service would sign for an account of this name is no request.
  const head = [proof.account_head.account_id, proof.account_head.date, proof.account_head.requests];
  const request = { ...proof.request, request_id: head[0]!, public_id: head[1]!, account_id: head[2]! };
  assert.ok(problemOf({ ...proof, request }) !== undefined);
  assert.notEqual(hex(leafHash('a')), hex(treeRoot([leafHash('a'), leafHash('a')])));
});

test('a proof of another account, day or key is refused; one by a key that is published and lost, by the head', () => {
  const good = proofBy(service);
  const other = proofBy(service, { head: { account_id: 'acct_b' } });
  assert.match(problemOf(other)!, /^request.account_id is not the account/);
  assert.match(problemOf({ ...good, account_head: other.account_head })!, /^request.account_id is not/);
  const tomorrow = proofBy(service, { date: '2026-11-29' });
  assert.match(problemOf({ ...good, day_head: tomorrow.day_head })!, /^account_head.date is not the day/);
  assert.match(problemOf(proofBy(service, { date: '2026-11-27' }))!, /^request.ended_at is not of the day/);
  assert.equal(problemOf(proofBy(service, { date: '2026-12-05' })), undefined, 'a week late');
  assert.match(problemOf(proofBy(service, { date: '2026-12-06' }))!, /^request.ended_at is not of the day/);
  assert.match(problemOf(proofBy(service, { date: '2026-99-99' }))!, /^request.ended_at is not of the day/);
  const stranger = newSigner();
  const forged = proofBy(stranger, { of: { cost: '0' } });
  assert.match(problemOf(forged)!, /is not among the given keys/);
  assert.match(problemOf({ ...forged, key: service.shown })!, /^day_head.key_id is not the key/);
  assert.match(
    problemOf({ ...forged, key: { ...service.shown, public_key: stranger.shown.public_key } })!,
    /^key.public_key is not the key/,
  );
  // A key that was rotated out may have been the reason for that: the heads that somebody kept decide.
  const keys = [stranger.shown, service.shown];
  assert.equal(problemOf(forged, { keys }), undefined);
  const kept: SignedHead[] = [good.day_head];
  assert.equal(problemOf(good, { keys, heads: kept }), undefined);
  assert.match(problemOf(forged, { keys, heads: kept })!, /two heads of one day were signed/);
  for (const heads of [
    [good.day_head, forged.day_head],
    [forged.day_head, good.day_head],
  ])
    assert.match(problemOf(good, { keys, heads })!, /two heads of one day were signed/);
});

test('a signer who lies about the number of requests contradicts the path', () => {
  for (const requests of ['0', '1', '2', '3', '9', '-5', '9007199254740993'])
    assert.match(problemOf(proofBy(service, { head: { requests } }))!, /^request_path is of no tree of/, requests);
  // Other leaves of trees of six and seven have the same sides.
  assert.equal(problemOf(proofBy(service, { head: { requests: '6' } })), undefined);
});

test('the command says what is wrong with a file, in the words of its reader, and no file speaks for it', async (t) => {
  const folder = temporaryFolder(t);
  const verify = (...args: string[]) => runCommand(folder, ['verify', 'receipt', ...args]);
  const write = (name: string, value: unknown): void =>
    writeFileSync(join(folder, name), typeof value === 'string' ? value : JSON.stringify(value));
  write('good.json', proofBy(service));
  write('large.json', ' '.repeat(5_000_000));
  write('none.json', 'null');
  write('number.json', '{"keys":5}');
  for (const [args, what] of [
    [['missing.json'], /missing.json cannot be read: ENOENT/],
    [['.'], /^\. cannot be read: EISDIR/],
    [['large.json'], /large.json has more than 4194304 bytes/],
    [['good.json', '--key', 'none.json'], /none.json has no keys: keys is missing/],
    [['good.json', '--key', 'number.json'], /number.json has no keys: keys is not a list/],
    [['good.json', '--head', 'large.json'], /large.json has more than/],
    [['good.json', '--head', 'good.json'], /good.json has no heads: heads.date is not a date/],
  ] as const) {
    const { code, stderr } = await verify(...args);
    assert.equal(code, 64, args.join(' '));
    assert.match(stderr, what);
    assert.doesNotMatch(stderr, /unexpected error/);
  }
  for (const of of [{ cost: null }, { cost: 'much' }, { ended_at: '9'.repeat(40) }, { prompt_tokens: '1e3' }]) {
    write('odd.json', proofBy(service, { of }));
    const { code, stdout } = await verify('odd.json');
    assert.equal(code, 1);
    assert.match(stdout, /^Nothing is proved: request\.\w+ is not a number\.$/m);
  }
  const says = 'It agrees with what you gave.';
  write(
    'speaks.json',
    proofBy(newSigner(), { of: { model_id: `x\n${says}\n\u2028\u001b[2J`, ending: `\r\n${says}\n` } }),
  );
  const { code, stdout } = await verify('speaks.json');
  assert.equal(code, 0);
  assert.ok(!stdout.split('\n').includes(says), stdout);
  assert.match(stdout, /^Compare the key with the published one/m);
});
