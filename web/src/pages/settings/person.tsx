import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useSend } from '../../api/use-api.ts';
import { applyTheme, chosenTheme } from '../../app/theme.ts';
import type { Theme } from '../../app/theme.ts';
import { Button } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { Facts, Panel } from '../../components/page.tsx';
import { Note } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { languages } from '../../i18n/language.ts';
import type { Language } from '../../i18n/language.ts';
import { changeLanguage, useLanguage, useText } from '../../i18n/text.ts';
import { useRefreshMe } from './use-me.ts';
import type { SettingsTexts } from './messages/en.ts';

/** Who one is, and how the console looks in this browser. */
export function PersonSettings() {
  return (
    <>
      <Profile />
      <Appearance />
    </>
  );
}

function Profile() {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  const [isOpen, setOpen] = useState(false);
  const refreshMe = useRefreshMe();
  const rename = useSend('patch', '/v1/me', { refreshes: ['/v1/members'] });
  const submit = (form: FormData): void =>
    rename.mutate(
      { body: { name: String(form.get('name')).trim() } },
      {
        onSuccess: () => {
          refreshMe();
          toast(t('saved'));
        },
      },
    );
  return (
    <Panel title={t('profile')}>
      <Form error={rename.error} onSubmit={submit}>
        <TextField
          key={me.name}
          name="name"
          label={t('name')}
          hint={t('nameHint')}
          defaultValue={me.name}
          maxLength={100}
          autoComplete="name"
        />
        <Facts
          facts={[
            [t('email'), me.email],
            [t('yourId'), <Id value={me.id} />],
          ]}
        />
        <FormButtons>
          <Button onClick={() => setOpen(true)}>{t('changeEmail')}</Button>
          <Button type="submit" look="primary" busy={rename.isPending}>
            {t('save')}
          </Button>
        </FormButtons>
      </Form>
      {isOpen && <EmailDialog onClose={() => setOpen(false)} />}
    </Panel>
  );
}

/** Nothing changes until the link in the mail is opened here. */
function EmailDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const change = useSend('post', '/v1/auth/email');
  const [sentTo, setSentTo] = useState<string>();
  const submit = (form: FormData): void => {
    const email = String(form.get('email')).trim();
    change.mutate({ body: { email } }, { onSuccess: () => setSentTo(email) });
  };
  return (
    <Dialog title={t('changeEmail')} onClose={onClose}>
      {sentTo === undefined ? (
        <Form error={change.error} onSubmit={submit}>
          <p>{t('changeEmailText')}</p>
          <TextField name="email" label={t('newEmail')} type="email" autoComplete="off" autoFocus maxLength={254} />
          <FormButtons>
            <Button type="submit" look="primary" busy={change.isPending}>
              {t('sendLink')}
            </Button>
          </FormButtons>
        </Form>
      ) : (
        <>
          <Note tone="good">{t('linkSent', { email: sentTo })}</Note>
          <FormButtons>
            <Button look="primary" onClick={onClose}>
              {t('close')}
            </Button>
          </FormButtons>
        </>
      )}
    </Dialog>
  );
}

const themes: readonly Theme[] = ['system', 'light', 'dark'];

function Appearance() {
  const t = useText<SettingsTexts>('settings');
  const language = useLanguage();
  const [theme, setTheme] = useState(chosenTheme);
  const choose = (wanted: Theme): void => {
    applyTheme(wanted);
    setTheme(wanted);
  };
  return (
    <Panel title={t('appearance')}>
      <FieldRow>
        <Select
          label={t('language')}
          value={language}
          options={Object.entries(languages).map(([value, text]) => ({ value, text }))}
          onChange={(event) => void changeLanguage(event.target.value as Language)}
        />
        <Select
          label={t('theme')}
          value={theme}
          options={themes.map((value) => ({ value, text: t(value) }))}
          onChange={(event) => choose(event.target.value as Theme)}
        />
      </FieldRow>
    </Panel>
  );
}
