import { Link } from '@tanstack/react-router';

import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { classes } from '../../components/classes.ts';
import { CodeBlock, Id } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { Facts } from '../../components/page.tsx';
import { useText } from '../../i18n/text.ts';
import { changesOf, pageOf } from './changes.ts';
import type { AuditTexts } from './messages/en.ts';
import styles from './audit.module.css';

export type Entry = Row<'/v1/audit_logs'>;

export const outcomes: Readonly<Record<Entry['outcome'], readonly [keyof AuditTexts, Tone]>> = {
  done: ['done', 'good'],
  refused: ['refused', 'warn'],
  failed: ['failed', 'bad'],
  begun: ['begun', 'plain'],
};

/** One change: who, what, before and after. */
export function EntryDialog({ of: entry, onClose }: { readonly of: Entry; readonly onClose: () => void }) {
  const t = useText<AuditTexts>('audit');
  const [outcome, tone] = outcomes[entry.outcome];
  const { actor, target, asked } = entry;
  const page = target === null ? undefined : pageOf(target);
  return (
    <Dialog title={entry.action} onClose={onClose} wide>
      <Facts
        facts={[
          [t('outcome'), <Badge tone={tone}>{t(outcome)}</Badge>],
          [t('at'), <Time at={entry.at} full />],
          [
            t('who'),
            <>
              <Actor of={actor} />{' '}
              {actor.id !== null && (
                <>
                  {actor.name !== null && <Id value={actor.id} />}{' '}
                  <Link to="/audit" search={{ actor: actor.id } as never}>
                    {t('theirChanges')}
                  </Link>
                </>
              )}
            </>,
          ],
          ...(entry.address === null ? [] : [[t('from'), <code>{entry.address}</code>] as const]),
          ...(target === null
            ? []
            : [
                [
                  t('subject'),
                  <>
                    <Id value={target} /> {page !== undefined && <Link to={page as never}>{t('open')}</Link>}{' '}
                    <Link to="/audit" search={{ target } as never}>
                      {t('itsChanges')}
                    </Link>
                  </>,
                ] as const,
              ]),
          ...(entry.request_id === null ? [] : [[t('requestId'), <Id value={entry.request_id} />] as const]),
        ]}
      />
      <Changes of={entry} />
      {asked !== null && asked !== undefined && (
        <details className={styles['asked']}>
          <summary>{t('asked')}</summary>
          <CodeBlock label={t('asked')} code={JSON.stringify(asked, null, 2)} wrap />
        </details>
      )}
    </Dialog>
  );
}

function Changes({ of: { before, after } }: { readonly of: Entry }) {
  const t = useText<AuditTexts>('audit');
  const changes = changesOf(before, after);
  if (changes.length === 0) return <p className={styles['quiet']}>{t('noDetails')}</p>;
  return (
    <div className={styles['scroll']} tabIndex={0} role="region" aria-label={t('changed')}>
      <table className={styles['changes']} aria-label={t('changed')}>
        <thead>
          <tr>
            <th scope="col">{t('field')}</th>
            <th scope="col">{t('before')}</th>
            <th scope="col">{t('after')}</th>
          </tr>
        </thead>
        <tbody>
          {changes.map(({ field, before: was, after: is, isSame }) => (
            <tr key={field} className={classes(isSame && styles['same'])}>
              <th scope="row">{field}</th>
              <td>
                <bdi>{was ?? '–'}</bdi>
              </td>
              <td>
                <bdi>{is ?? '–'}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Somebody by the name that they had then. */
export function Actor({ of: { kind, name, id } }: { readonly of: Entry['actor'] }) {
  const t = useText<AuditTexts>('audit');
  if (name !== null) return <bdi className={styles['who']}>{name}</bdi>;
  if (id !== null) return <code className={styles['id']}>{id}</code>;
  return t(kind === 'cli' ? 'operator' : kind === 'user' ? 'stranger' : kind === 'key' ? 'otherKey' : 'service');
}
