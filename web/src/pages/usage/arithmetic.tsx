import { Id } from '../../components/code.tsx';
import { Count, Money, Time } from '../../components/figures.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import { formatExact, formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { UsageTexts } from './messages/en.ts';
import { modelsOf } from './receipt.ts';
import type { Receipt } from './receipt.ts';
import styles from './usage.module.css';

const items = {
  input: 'inputLine',
  cached_input: 'cachedLine',
  output: 'outputLine',
} as const satisfies Readonly<Record<Receipt['lines'][number]['item'], keyof UsageTexts>>;

const exact = (microcents: number): string => formatMoney(microcents, { precision: 'exact' });

/** Tokens times prices, exactly; the sum; what of it was charged, and why. */
export function Arithmetic({ of: receipt }: { readonly of: Receipt }) {
  const t = useText<UsageTexts>('usage');
  const { list_cost_microcents: whole, total_cost_microcents: charged, refunded_microcents: refunded } = receipt;
  const { asked, served } = modelsOf(receipt);
  const sums: readonly (readonly [string, string])[] = [
    [t('sum'), formatExact(receipt.sum_microcents)],
    [t('roundedUp'), exact(whole)],
    ...(whole === charged ? [] : [[t('notCharged'), exact(charged - whole)] as const]),
    [t('charged'), exact(charged)],
    ...(refunded === 0 ? [] : [[t('refunded'), exact(-refunded)] as const]),
  ];
  return (
    <>
      <div className={styles['scroll']} tabIndex={0} role="region" aria-label={t('charge')}>
        <table className={styles['sums']}>
          <thead>
            <tr>
              <th scope="col">{t('item')}</th>
              <th scope="col">{t('tokens')}</th>
              <th scope="col">{t('perMillion')}</th>
              <th scope="col">{t('amount')}</th>
            </tr>
          </thead>
          <tbody>
            {receipt.lines.map(({ item, tokens, microcents_per_million_tokens: price, microcents }) => (
              <tr key={item}>
                <th scope="row">{t(items[item])}</th>
                <td>
                  <Count value={tokens} />
                </td>
                <td>{exact(price)}</td>
                <td>{formatExact(microcents)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            {sums.map(([name, amount]) => (
              <tr key={name} className={name === t('charged') ? styles['total'] : undefined}>
                <th scope="row" colSpan={3}>
                  {name}
                </th>
                <td>{amount}</td>
              </tr>
            ))}
          </tfoot>
        </table>
      </div>
      {receipt.tokens_reasoning > 0 && (
        <p className={styles['why']}>{t('reasoningWithin', { n: receipt.tokens_reasoning })}</p>
      )}
      {served !== undefined && served !== asked && <p className={styles['why']}>{t('pricesOf', { model: served })}</p>}
      {receipt.tokens_counted && receipt.lines.some(({ tokens }) => tokens > 0) && (
        <p className={styles['why']}>{t('counted')}</p>
      )}
      {receipt.plan !== null && <p className={styles['why']}>{t('plan', { plan: receipt.plan })}</p>}
      <p className={styles['why']} lang="en">
        {receipt.explanation}
      </p>
    </>
  );
}

/** The rows of the ledger that the request has left. */
export function LedgerRows({ of: { ledger } }: { readonly of: Receipt }) {
  const t = useText<UsageTexts>('usage');
  return (
    <DataTable
      label={t('ledger')}
      list={wholeList(ledger)}
      keyOf={({ id, type }) => `${type} ${id}`}
      empty={null}
      columns={[
        { head: t('what'), main: true, cell: ({ type }) => (type === 'usage' ? t('usageRow') : t('refundRow')) },
        { head: t('when'), cell: ({ created_at: at }) => <Time at={at} /> },
        { head: t('ledgerId'), cell: ({ id }) => <Id value={id} /> },
        {
          head: t('amount'),
          number: true,
          cell: ({ amount_microcents: sum }) => <Money microcents={sum} precision="exact" sign />,
        },
      ]}
    />
  );
}
