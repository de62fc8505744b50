import { useText } from '../../i18n/text.ts';
import { CodeBlock } from '../../components/code.tsx';
import { shortened } from './export.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Answer } from './playground.ts';
import styles from './playground.module.css';

/** The request, and what came, event for event. */
export function RawView({ of: { request, progress } }: { readonly of: Answer }) {
  const t = useText<PlaygroundTexts>('playground');
  const body = `POST ${request.family.path}\n${JSON.stringify(request.body, null, 2)}`;
  return (
    <div className={styles['raw']}>
      <CodeBlock label={`POST ${request.family.path}`} code={body} shown={shortened(body)} />
      <div
        className={styles['events']}
        tabIndex={0}
        role="region"
        aria-label={t('rawEvents', { n: progress.raw.length })}
      >
        <table>
          <thead className="visually-hidden">
            <tr>
              <th scope="col">ms</th>
              <th scope="col">{t('event')}</th>
            </tr>
          </thead>
          <tbody>
            {progress.raw.map(({ atMs, name, data }, at) => (
              <tr key={at}>
                <td>{Math.round(atMs)}</td>
                <td>
                  {name !== '' && <code className={styles['eventName']}>{name}</code>}
                  <code>{data}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {progress.rawLeftOut > 0 && <p>{t('rawLeftOut', { n: progress.rawLeftOut })}</p>}
    </div>
  );
}
