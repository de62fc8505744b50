import { useState } from 'react';
import type { ReactNode } from 'react';

import { useSession } from '../../api/session.ts';
import { getFile, useGet, useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Checkbox, Form, FormButtons, TextField } from '../../components/form.tsx';
import { Panel } from '../../components/page.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import type { SettingsTexts } from './messages/en.ts';
import { Part } from './part.tsx';
import styles from './settings.module.css';
import { ZeroRetention } from './zero-retention.tsx';

/** What is kept, how to take it along, and how to remove it. */
export function DataSettings() {
  const t = useText<SettingsTexts>('settings');
  const { account, me } = useSession();
  const [open, setOpen] = useState<'account' | 'me'>();
  const isOwner = account?.role === 'owner';
  const close = (): void => setOpen(undefined);
  return (
    <>
      <Panel title={t('yourData')}>
        <div className={styles['parts']}>
          {account !== undefined && (
            <Part
              title={t('exportAccount')}
              text={isOwner ? t('exportText', { account: account.name }) : t('onlyOwners')}
            >
              {isOwner && (
                <SaveButton name={`${account.id}.json`} load={() => getFile('/v1/account/export')}>
                  {t('exportAccount')}
                </SaveButton>
              )}
            </Part>
          )}
          {account !== undefined && <ZeroRetention />}
        </div>
      </Panel>
      <Panel title={t('dangerZone')}>
        <div className={styles['parts']}>
          {account !== undefined && (
            <Part
              title={t('deleteAccount')}
              text={isOwner ? t('deleteAccountText', { account: account.name }) : t('onlyOwners')}
            >
              {isOwner && (
                <Button look="danger" onClick={() => setOpen('account')}>
                  {t('deleteAccount')}
                </Button>
              )}
            </Part>
          )}
          <Part title={t('deleteMe')} text={t('deleteMeText')}>
            <Button look="danger" onClick={() => setOpen('me')}>
              {t('deleteMe')}
            </Button>
          </Part>
        </div>
      </Panel>
      {open === 'account' && account !== undefined && <DeleteAccountDialog name={account.name} onClose={close} />}
      {open === 'me' && <DeleteMeDialog email={me.email} onClose={close} />}
    </>
  );
}

interface TypedConfirmProps {
  readonly title: string;
  readonly text: string;
  /** What has to be typed. */
  readonly typed: string;
  readonly action: string;
  readonly isBusy: boolean;
  readonly error: unknown;
  readonly onConfirm: (form: FormData) => void;
  readonly onClose: () => void;
  readonly children?: ReactNode;
}

/** Before what is gone for ever: a button alone is pressed too easily. */
function TypedConfirm({ title, text, typed, action, isBusy, error, onConfirm, onClose, children }: TypedConfirmProps) {
  const t = useText<SettingsTexts>('settings');
  const [isTyped, setTyped] = useState(false);
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <Form error={error} onSubmit={onConfirm}>
        {children}
        <TextField
          label={t.rich('typeIt', { code: (content) => <code>{content}</code> }, { text: typed })}
          autoComplete="off"
          spellCheck={false}
          autoFocus
          onChange={(event) => setTyped(event.target.value.trim() === typed.trim())}
        />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="danger" busy={isBusy} disabled={!isTyped}>
            {action}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

function DeleteAccountDialog({ name, onClose }: { readonly name: string; readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const credits = useGet('/v1/credits');
  const remove = useSend('delete', '/v1/account');
  const credit = credits.data?.balance_microcents ?? 0;
  const confirm = (form: FormData): void =>
    remove.mutate(
      { params: { query: form.get('forfeit') === null ? {} : { forfeit_credit: true } } },
      { onSuccess: () => location.assign('/') },
    );
  return (
    <TypedConfirm
      title={t('deleteAccount')}
      text={t('deleteAccountWarning')}
      typed={name}
      action={t('deleteAccount')}
      isBusy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {credit > 0 && (
        <Checkbox
          name="forfeit"
          required
          label={t('forfeit', { amount: formatMoney(credit) })}
          hint={t('forfeitHint')}
        />
      )}
    </TypedConfirm>
  );
}

function DeleteMeDialog({ email, onClose }: { readonly email: string; readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const remove = useSend('delete', '/v1/me');
  return (
    <TypedConfirm
      title={t('deleteMe')}
      text={t('deleteMeWarning')}
      typed={email}
      action={t('deleteMe')}
      isBusy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate({}, { onSuccess: () => location.assign('/sign-in') })}
      onClose={onClose}
    />
  );
}
