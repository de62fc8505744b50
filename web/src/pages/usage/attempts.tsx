import { Badge } from '../../components/badge.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import { formatMilliseconds, formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import type { UsageTexts } from './messages/en.ts';
import type { Receipt } from './receipt.ts';
import styles from './usage.module.css';

type Attempt = NonNullable<Receipt['attempts']>[number];

/** The backends that were tried, one after the other, and the figures by which each was chosen. */
export function Attempts({ of: attempts, model: served }: { readonly of: readonly Attempt[]; readonly model: string }) {
  const t = useText<UsageTexts>('usage');
  const areSeveral = attempts.some(({ model }) => model !== null);
  return (
    <DataTable
      label={t('backends')}
      list={wholeList(attempts.map((attempt, at) => ({ ...attempt, at })))}
      keyOf={({ at }) => String(at)}
      empty={null}
      columns={[
        {
          head: t('backend'),
          main: true,
          cell: ({ backend, model }) => (
            <>
              <code>{backend}</code>
              {areSeveral && <> · {model ?? served}</>}
            </>
          ),
        },
        { head: t('after'), number: true, cell: ({ at_ms: ms }) => formatMilliseconds(ms) },
        {
          head: t('outcome'),
          cell: ({ error_code: code, hedge }) =>
            hedge === 'overtaken' || hedge === 'second_stopped' ? (
              <Badge>{t('slower')}</Badge>
            ) : code === null ? (
              <span>
                <Badge tone="good">{t('answered')}</Badge>
              </span>
            ) : (
              <a className={styles['code']} href={`/docs/errors/${code}`} target="_blank" rel="noopener">
                <code>{code}</code>
              </a>
            ),
        },
        { head: t('why'), cell: (attempt) => <Why of={attempt} /> },
      ]}
    />
  );
}

function Why({ of: { chosen, hedge } }: { readonly of: Attempt }) {
  const t = useText<UsageTexts>('usage');
  const isSecond = hedge === 'second' || hedge === 'second_stopped';
  if (chosen === null) return <>{isSecond ? t('second') : '–'}</>;
  return (
    <span>
      {isSecond && <>{t('second')} </>}
      {t('expected', { time: formatMilliseconds(chosen.expected_ms) })} {t('toRead', { n: chosen.tokens_uncached })},{' '}
      {t('inCache', { n: chosen.tokens_cached })}, {t('waitingThere', { n: chosen.tokens_waiting })},{' '}
      {t('runningThere', { n: chosen.running })}, {t('readingSpeed', { speed: formatNumber(chosen.tokens_per_second) })}
      . {t('oneOf', { n: chosen.of })} {chosen.rank > 0 && t('rank', { rank: formatNumber(chosen.rank) })}
    </span>
  );
}
