"""`python -m deploy.dashboards` writes the JSON; `deploy.check` compares."""

from deploy.dashboards import write

if __name__ == "__main__":
    write()
