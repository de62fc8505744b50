import { CodeBlock } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { useText } from '../../i18n/text.ts';
import { exportsOf, keyVariable, shortened } from './export.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Request } from './run.ts';
import styles from './playground.module.css';

export function CodeDialog({ of: request, onClose }: { readonly of: Request; readonly onClose: () => void }) {
  const t = useText<PlaygroundTexts>('playground');
  const shown = exportsOf(request);
  const isAgent = (title: string): boolean => title === 'Claude Code' || title === 'Codex';
  return (
    <Dialog title={t('codeOf')} onClose={onClose} wide>
      <Tabs
        label={shown.map(([title]) => title).join(', ')}
        tabs={shown.map(([title, code]) => ({
          value: title,
          title,
          content: (
            <>
              <CodeBlock label={title} code={code} shown={shortened(code)} />
              <p className={styles['codeNote']}>
                {isAgent(title) ? t('agents') : t('codeText', { variable: keyVariable })}
                {shortened(code) !== code && ` ${t('codeCut')}`}
              </p>
            </>
          ),
        }))}
      />
    </Dialog>
  );
}
