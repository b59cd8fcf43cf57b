/** Links for people without a token: made, copied, listed and revoked. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { Dialog } from '../shared/dialog.tsx'
import { fullTime } from '../shared/moment.ts'
import { Button, CopyButton, Empty, Field, Problem, Select } from '../shared/parts.tsx'
import { api, type LinkRow } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'

const RIGHTS = [
  ['watch', 'watch'],
  ['talk', 'talk'],
  ['talk,answer', 'talk and answer questions'],
] as const

const HOUR_MS = 3_600_000
const LIFETIMES = [
  [String(HOUR_MS), 'one hour'],
  [String(24 * HOUR_MS), 'one day'],
  [String(7 * 24 * HOUR_MS), 'one week'],
] as const

type ShareDialogProps = { readonly session: string; readonly onClose: () => void }

export function ShareDialog({ session, onClose }: ShareDialogProps) {
  const [rights, setRights] = useState<string>('watch')
  const [life, setLife] = useState<string>(String(HOUR_MS))
  const [url, setUrl] = useState<string | null>(null)
  const [links, setLinks] = useState<readonly LinkRow[] | null>(null)
  const [problem, setProblem] = useState('')
  const run = (task: () => Promise<void>): void => {
    setProblem('')
    task()
      .then(() => api.links(session))
      .then(setLinks)
      .catch((error: Error) => setProblem(error.message))
  }
  useEffect(() => run(async () => undefined), [session])
  const make = async (): Promise<void> => {
    setUrl((await api.link(session, rights.split(','), Number(life))).url)
  }
  return (
    <Dialog title="Share this session" onClose={onClose}>
      <div class="form">
        <p class="muted">Everybody with the link gets in. It is shown once, when it is made.</p>
        <Field name="Its bearer may">
          <Select options={RIGHTS} value={rights} onChange={setRights} />
        </Field>
        <Field name="It is valid for">
          <Select options={LIFETIMES} value={life} onChange={setLife} />
        </Field>
        <div class="buttons">
          <Button kind="primary" onClick={() => run(make)}>
            Make a link
          </Button>
        </div>
        {url === null ? null : <MadeLink url={url} />}
        {problem === '' ? null : <Problem>{problem}</Problem>}
        <h3>Links to this session</h3>
        {links?.length === 0 ? <Empty>There are none.</Empty> : null}
        <ul class="links">
          {links?.map((link) => (
            <LinkItem
              key={link.id}
              link={link}
              revoke={() => run(() => api.revokeLink(session, link.id))}
            />
          ))}
        </ul>
        <form method="dialog" class="buttons">
          <Button type="submit">Done</Button>
        </form>
      </div>
    </Dialog>
  )
}

function MadeLink({ url }: { readonly url: string }) {
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => input.current?.select(), [url])
  return (
    <div class="made-link">
      <input
        ref={input}
        readonly
        aria-label="The link"
        value={url}
        onFocus={(event) => event.currentTarget.select()}
      />
      <CopyButton text={url} kind="primary">
        Copy
      </CopyButton>
    </div>
  )
}

function LinkItem({ link, revoke }: { readonly link: LinkRow; readonly revoke: () => void }) {
  const { id, scopes, expiresAt, uses } = link
  return (
    <li data-link={id}>
      <span>
        may {scopes.map(shownName).join(' and ')}
        <span class="muted small">
          {' '}
          {expiresAt === null ? 'until it is revoked' : `until ${fullTime(expiresAt)}`}
          {uses === null ? '' : `, ${uses} ${uses === 1 ? 'use' : 'uses'} left`}
        </span>
      </span>
      <Button kind="danger" label={`Revoke ${id}`} onClick={revoke}>
        Revoke
      </Button>
    </li>
  )
}
