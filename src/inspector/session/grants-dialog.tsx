/** What people have always allowed the agent of a session: listed, and taken back. */
import { useEffect, useState } from 'preact/hooks'
import { Dialog } from '../shared/dialog.tsx'
import { Button, Empty, Problem } from '../shared/parts.tsx'
import { api, type GrantRow } from '../shared/server.ts'
import { shownText } from '../shared/shown-text.ts'

type GrantsDialogProps = {
  readonly session: string
  readonly mayRevoke: boolean
  readonly onClose: () => void
}

export function GrantsDialog({ session, mayRevoke, onClose }: GrantsDialogProps) {
  const [grants, setGrants] = useState<readonly GrantRow[] | null>(null)
  const [problem, setProblem] = useState('')
  const run = (task: () => Promise<void>): void => {
    setProblem('')
    task()
      .then(() => api.grants(session))
      .then(setGrants)
      .catch((error: Error) => setProblem(error.message))
  }
  useEffect(() => run(async () => undefined), [session])
  return (
    <Dialog title="Always allowed" onClose={onClose}>
      <div class="form">
        <p class="muted">
          The agent does this without asking until the session is closed. What is taken back counts
          from the next turn on.
        </p>
        {problem === '' ? null : <Problem>{problem}</Problem>}
        {grants?.length === 0 ? <Empty>Nothing is always allowed.</Empty> : null}
        <ul class="links">
          {grants?.map(({ id, label }) => (
            <li key={id}>
              <code>{shownText(label)}</code>
              {mayRevoke ? (
                <Button
                  kind="danger"
                  label={`Take back ${shownText(label)}`}
                  onClick={() => run(() => api.revokeGrant(session, id))}
                >
                  Take back
                </Button>
              ) : null}
            </li>
          ))}
        </ul>
        <form method="dialog" class="buttons">
          <Button type="submit">Done</Button>
        </form>
      </div>
    </Dialog>
  )
}
