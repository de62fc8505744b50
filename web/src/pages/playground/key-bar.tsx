import { mayMakeKeys, useSession } from '../../api/session.ts';
import { useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { classes } from '../../components/classes.ts';
import { Time } from '../../components/figures.tsx';
import { controlClass, Form } from '../../components/form.tsx';
import { KeyIcon } from '../../components/icons.tsx';
import { Panel } from '../../components/page.tsx';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { HeldKey } from './playground.ts';
import styles from './playground.module.css';

/** Of a key that the page makes for itself. */
const ownKey = { name: 'Playground', limit_cents: 100 };
const ownKeyHours = 8;

interface KeyBarProps {
  readonly held: HeldKey | undefined;
  readonly onChange: (key: HeldKey | undefined) => void;
}

/** The key of the page: made here, or pasted. It is nowhere but in the memory of the page. */
export function KeyBar({ held, onChange }: KeyBarProps) {
  const t = useText<PlaygroundTexts>('playground');
  if (held === undefined) return <AskForKey onChange={onChange} />;
  const end = held.secret.slice(-4);
  return (
    <div className={styles['key']}>
      <KeyIcon />
      {held.expiresAt === undefined ? (
        <span>{t('keyHeld', { end })}</span>
      ) : (
        <span>
          {t('keyEnds', { end })} <Time at={held.expiresAt} relative />
        </span>
      )}
      <Button small look="quiet" onClick={() => onChange(undefined)}>
        {t('forget')}
      </Button>
    </div>
  );
}

function AskForKey({ onChange }: Pick<KeyBarProps, 'onChange'>) {
  const t = useText<PlaygroundTexts>('playground');
  const { may } = useSession();
  const create = useSend('post', '/v1/keys', { refreshes: ['/v1/keys'] });
  const make = (): void => {
    const expiresAt = Math.floor(Date.now() / 1000) + ownKeyHours * 3600;
    create.mutate(
      { body: { ...ownKey, expires_at: expiresAt } },
      { onSuccess: ({ key }) => onChange({ secret: key, expiresAt }) },
    );
  };
  const paste = (form: FormData): void => {
    const secret = String(form.get('secret')).trim();
    if (secret !== '') onChange({ secret, expiresAt: undefined });
  };
  return (
    <Panel>
      <Form error={create.error} onSubmit={paste}>
        <p>
          {t('keyText')}{' '}
          {may(mayMakeKeys) && t('createKeyText', { amount: formatCents(ownKey.limit_cents), hours: ownKeyHours })}
        </p>
        <div className={styles['keyForm']}>
          {may(mayMakeKeys) && (
            <Button look="primary" busy={create.isPending} onClick={make}>
              {t('createKey')}
            </Button>
          )}
          <div className={styles['paste']}>
            <input
              className={classes(controlClass, styles['secret'])}
              name="secret"
              autoComplete="off"
              spellCheck={false}
              aria-label={t('key')}
              placeholder={may(mayMakeKeys) ? t('keyPaste') : t('key')}
            />
            <Button type="submit">{t('send')}</Button>
          </div>
        </div>
      </Form>
    </Panel>
  );
}
