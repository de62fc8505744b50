import { exportedSections } from '../store/erasure/exported-sections.ts';
import type { ExportedSection } from '../store/erasure/exported-sections.ts';
import type { Repositories } from '../store/repositories/repositories.ts';

/**
 * Yields everything that the service stores about an account, as the text of one JSON object, in pieces: a list for each section. Amounts
 * are microcents, times milliseconds since 1970, bytes hexadecimal digits; integers beyond 2^53 are decimal strings. It contains no secret
 * and no hash of one. An actor outside the account, such as an operator, is not named in it.
 */
export async function* exportAccount(
  accountId: string,
  repositories: Pick<Repositories, 'exportPage'>,
): AsyncGenerator<string> {
  const own = new Set<string>();
  yield `{"exported_account":${JSON.stringify(accountId)}`;
  for (const section of Object.keys(exportedSections) as ExportedSection[]) {
    yield `,\n"${section}":[`;
    let isFirst = true;
    for (let after: Parameters<Repositories['exportPage']>[0]['after']; ;) {
      const { rows, next } = await repositories.exportPage({ accountId, section, after });
      const texts = rows.map((row) => {
        if (section === 'members') own.add(String(row['user_id']));
        if (section === 'keys') own.add(String(row['id']));
        const isStranger = section === 'audit' && row['actor_id'] !== null && !own.has(String(row['actor_id']));
        return JSON.stringify(isStranger ? { ...row, actor_id: null, actor_name: null, address: null } : row, printed);
      });
      if (texts.length > 0) yield `${isFirst ? '\n' : ',\n'}${texts.join(',\n')}`;
      isFirst = isFirst && texts.length === 0;
      if (next === undefined) break;
      after = next;
    }
    yield ']';
  }
  yield '}\n';
}

/** A row is flat, so bytes are seen before they are treated as objects. */
function printed(this: unknown, name: string, value: unknown): unknown {
  const raw = (this as Readonly<Record<string, unknown>>)[name];
  if (raw instanceof Uint8Array) return Buffer.from(raw).toString('hex');
  if (typeof value !== 'bigint') return value;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}
